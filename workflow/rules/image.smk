# One recipe, one lock, two formats of image.


rule docker_image:
    input:
        "containers/Dockerfile",
        "containers/stacks.yaml",
        lock="containers/locks/{stack}.txt",
    output:
        "containers/images/{stack}.docker.json",
    log:
        "logs/image/{stack}_docker.log",
    conda:
        ENVIRONMENT
    message:
        "Building the Docker image of the stack {wildcards.stack}"
    shell:
        "gpuatlas image docker --stack {wildcards.stack} --out {output} &> {log}"


rule sif_image:
    input:
        "containers/gpuatlas.def",
        "containers/stacks.yaml",
        lock="containers/locks/{stack}.txt",
    output:
        "containers/images/{stack}.sif",
    log:
        "logs/image/{stack}_sif.log",
    conda:
        ENVIRONMENT
    message:
        "Building the Apptainer image of the stack {wildcards.stack}"
    shell:
        "gpuatlas image sif --stack {wildcards.stack} --out {output} &> {log}"
