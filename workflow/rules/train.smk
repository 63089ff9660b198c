# Training and unprofiled timing of the captured cells, and the smoke test of the training loop.

# torch.compile tunes its kernels by measuring them, so that two compilations of a target may launch other
# kernels. Timing, timeline and capture of a cell share one cache. A site's scratch ends with its job, so the
# cache lies beside the cell's other state, which the image shows too.
COMPILE_CACHE = 'env TORCHINDUCTOR_CACHE_DIR="$PWD"/results/cells/{cell}/.state/compiled'


rule train_cell:
    input:
        image_of,
        data=DATASET,
        targets=ancient("config/targets.yaml"),
    output:
        expand("results/cells/{{cell}}/train/{file}", file=TRAIN_FILES),
    log:
        "logs/train/{cell}.log",
    wildcard_constraints:
        cell=of_origin("captured"),
    conda:
        ENVIRONMENT
    threads: site_threads
    resources:
        **site_resources("train"),
    params:
        where=where,
        launch=launcher,
        workload=workload_options,
        training=training_options,
        target=target_of,
        definition=definition,
    message:
        "Training {wildcards.cell} at {params.where}"
    shell:
        "{params.launch} gpuatlas train --targets {input.targets} --target {params.target} {params.workload}"
        " {params.training} --state results/cells/{wildcards.cell}/.state"
        " --out results/cells/{wildcards.cell}/train &> {log}"


# Step times without a profiler, then every launch of one step by torch.profiler: its timeline is what a capture
# is weighted with, and the evidence that the target took effect.
rule time_cell:
    input:
        image_of,
        targets=ancient("config/targets.yaml"),
    output:
        expand("results/cells/{{cell}}/timing/{file}", file=TIMING_FILES),
    log:
        "logs/timing/{cell}.log",
    wildcard_constraints:
        cell=of_origin("captured"),
    conda:
        ENVIRONMENT
    threads: site_threads
    resources:
        **site_resources("timing"),
    params:
        where=where,
        launch=launcher,
        network=network_options,
        cache=COMPILE_CACHE,
        repeats=config["timing"]["repeats"],
        steps=config["timing"]["steps"],
        target=target_of,
        definition=definition,
        thresholds=thresholds,
        allow=effect_options,
    message:
        "Timing {wildcards.cell} at {params.where}"
    shell:
        "({params.launch} {params.cache} gpuatlas timing --targets {input.targets} --target {params.target} {params.network}"
        " --device cuda --repeats {params.repeats} --steps {params.steps} --out results/cells/{wildcards.cell}/timing"
        " && {params.launch} {params.cache} gpuatlas timeline --targets {input.targets} --target {params.target} {params.network}"
        " --device cuda {params.allow} --out results/cells/{wildcards.cell}/timing) &> {log}"


rule smoke_data:
    output:
        directory("data/smoke"),
    log:
        "logs/smoke_data.log",
    conda:
        ENVIRONMENT
    params:
        size=config["smoke"]["size"] if config["smoke"] else 0,
    message:
        "Making 2 phantoms of {params.size}³ for the smoke test"
    shell:
        "gpuatlas data phantom --out {output} --volumes 2 --size {params.size} --seed 0 &> {log}"


# The real network on the CPU for a few steps: the loop runs, the weights are untrained.
rule smoke_train:
    input:
        data="data/smoke",
        targets=ancient("config/targets.yaml"),
    output:
        expand("results/smoke/{file}", file=TRAIN_FILES),
    log:
        "logs/smoke_train.log",
    conda:
        ENVIRONMENT
    threads: 1
    params:
        network=config["workload"]["network"],
        definition=settings_of("baseline"),
        size=config["smoke"]["size"] if config["smoke"] else 0,
        iterations=config["smoke"]["iterations"] if config["smoke"] else 0,
    message:
        "Training {params.network} at {params.size}³ on the CPU for {params.iterations} steps: a smoke test"
    shell:
        # More threads than cores would wait for each other; nobody needs the weights.
        "(OMP_NUM_THREADS={threads} gpuatlas train --targets {input.targets} --target baseline --network {params.network} --size {params.size}"
        " --device cpu --data {input.data} --iterations {params.iterations} --seed 0"
        " --state results/smoke/.state --out results/smoke && rm -r results/smoke/.state) &> {log}"
