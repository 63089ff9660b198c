# The training volumes.


rule phantom:
    output:
        "data/phantom_{volumes}x{size}_seed{seed}/dataset.json",
    log:
        "logs/data/phantom_{volumes}x{size}_seed{seed}.log",
    localrule: True
    conda:
        ENVIRONMENT
    message:
        "Making {wildcards.volumes} phantoms of {wildcards.size}³"
    shell:
        "gpuatlas data phantom --out $(dirname {output}) --volumes {wildcards.volumes} --size {wildcards.size}"
        " --seed {wildcards.seed} &> {log}"
