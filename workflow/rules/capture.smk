# A cell's capture: by Nsight Compute at its site, replayed from a recording, or imported from a user's report.


# Where a machine refuses its counters, the cell keeps its times and its timeline, and says so.
rule capture_cell:
    input:
        image_of,
        timing=expand("results/cells/{{cell}}/timing/{file}", file=TIMING_FILES),
        targets=ancient("config/targets.yaml"),
    output:
        "results/cells/{cell}/capture/report.ncu-repz",
        "results/cells/{cell}/capture/plan.json",
        "results/cells/{cell}/capture/environment.json",
    log:
        "logs/capture/{cell}.log",
    wildcard_constraints:
        cell=of_origin("captured"),
    conda:
        ENVIRONMENT
    threads: site_threads
    resources:
        **site_resources("capture"),
    params:
        where=where,
        launch=launcher,
        network=network_options,
        ncu=capture_options,
        cache=COMPILE_CACHE,
        target=target_of,
        definition=definition,
    message:
        "Profiling {wildcards.cell} with Nsight Compute at {params.where}"
    shell:
        "{params.launch} {params.cache} gpuatlas capture --targets {input.targets} --target {params.target} {params.network}"
        " --timing results/cells/{wildcards.cell}/timing {params.ncu}"
        " --if-refused degrade --state results/cells/{wildcards.cell}/.state --out results/cells/{wildcards.cell}/capture &> {log}"


rule replay:
    input:
        lambda wildcards: STUDY.cell(wildcards.cell).source,
        f"{config['recordings_dir']}/{{cell}}/plan.json",
        f"{config['recordings_dir']}/{{cell}}/environment.json",
    output:
        "results/cells/{cell}/capture/report.ncu-repz",
        "results/cells/{cell}/capture/plan.json",
        "results/cells/{cell}/capture/environment.json",
    log:
        "logs/capture/{cell}.log",
    wildcard_constraints:
        cell=of_origin("recorded"),
    conda:
        ENVIRONMENT
    params:
        content=content,
    message:
        "Replaying {wildcards.cell}"
    shell:
        "cp {input} results/cells/{wildcards.cell}/capture &> {log}"


rule replay_timing:
    input:
        expand(
            f"{config['recordings_dir']}/{{{{cell}}}}/timing/{{file}}",
            file=TIMING_FILES,
        ),
    output:
        expand("results/cells/{{cell}}/timing/{file}", file=TIMING_FILES),
    log:
        "logs/replay_timing/{cell}.log",
    wildcard_constraints:
        cell=of_origin("recorded"),
    conda:
        ENVIRONMENT
    params:
        content=content,
    shell:
        "cp {input} results/cells/{wildcards.cell}/timing &> {log}"


rule import_report:
    input:
        lambda wildcards: STUDY.cell(wildcards.cell).source,
    output:
        "results/cells/{cell}/capture/report.ncu-repz",
        "results/cells/{cell}/capture/plan.json",
        "results/cells/{cell}/capture/environment.json",
    log:
        "logs/capture/{cell}.log",
    wildcard_constraints:
        cell=of_origin("imported"),
    conda:
        ENVIRONMENT
    params:
        content=content,
    message:
        "Importing {input} as {wildcards.cell}"
    shell:
        "gpuatlas import {input:q} --out results/cells/{wildcards.cell}/capture &> {log}"
