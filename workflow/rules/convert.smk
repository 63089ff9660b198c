# From reports to tables.


rule convert:
    input:
        stage_sources("convert"),
        report=lambda wildcards: f"results/cells/{cell_of(wildcards).name}/capture/report.ncu-repz",
        plan="results/cells/{architecture}/{target}/capture/plan.json",
    output:
        expand(
            "results/tables/{table}/architecture={{architecture}}/target={{target}}/part.parquet",
            table=TABLES,
        ),
    log:
        "logs/convert/{architecture}_{target}.log",
    conda:
        ENVIRONMENT
    message:
        "Converting {wildcards.architecture}/{wildcards.target}"
    shell:
        "gpuatlas convert {input.report} --plan {input.plan} --out results/tables --partition architecture={wildcards.architecture}"
        " --partition target={wildcards.target} &> {log}"


# The cell's manifest: files with their SHA-256, origin, coverage, evidence.
rule describe:
    input:
        expand(
            "results/tables/{table}/architecture={{architecture}}/target={{target}}/part.parquet",
            table=TABLES,
        ),
        "results/cells/{architecture}/{target}/capture/plan.json",
        lambda wildcards: measured_files(cell_of(wildcards)),
        "config/architectures.yaml",
        "config/targets.yaml",
        stage_sources("describe"),
    output:
        "results/cells/{architecture}/{target}/cell.json",
    log:
        "logs/describe/{architecture}_{target}.log",
    conda:
        ENVIRONMENT
    params:
        cell=lambda wildcards: cell_of(wildcards).name,
        origin=lambda wildcards: cell_of(wildcards).origin,
    message:
        "Describing {params.cell}"
    shell:
        "gpuatlas describe {params.cell} --origin {params.origin} --results results &> {log}"
