# From tables to comparisons, verdicts and figures.


rule study:
    output:
        study="results/study.json",
        config="results/config.json",
    log:
        "logs/study.log",
    conda:
        ENVIRONMENT
    params:
        study=STUDY.as_json(),
        config=dict(config),
    message:
        "Writing down the study as configured"
    run:
        write_json(Path(output.study), params.study)
        write_json(Path(output.config), params.config)


# How far a cell's target lies from baseline in quality: runs of the user, or those that a recording brings along.
rule quality:
    input:
        quality_runs,
        "config/architectures.yaml",
        stage_sources("quality"),
        comparison=lambda wildcards: STUDY.cell(wildcards.cell).quality,
    output:
        "results/cells/{cell}/quality/quality.json",
    log:
        "logs/quality/{cell}.log",
    wildcard_constraints:
        cell=one_of(cell for cell in STUDY.cells if cell.quality),
    localrule: True
    conda:
        ENVIRONMENT
    message:
        "Taking the quality runs of {wildcards.cell}"
    shell:
        "gpuatlas quality {input.comparison:q} --cell {wildcards.cell} --results results &> {log}"


rule compare:
    input:
        "results/study.json",
        manifests(),
        tables_of(STUDY.present()),
        quality_files(STUDY.cells),
        stage_sources("compare"),
    output:
        expand("results/compare/{name}.{kind}", name=COMPARISONS, kind=["parquet", "csv"]),
    log:
        "logs/compare.log",
    conda:
        ENVIRONMENT
    message:
        "Comparing the captures"
    shell:
        "gpuatlas compare --results results &> {log}"


rule claims:
    input:
        rules.compare.output,
        "config/claims.yaml",
        "workflow/schemas/claims.schema.yaml",
        stage_sources("compare"),
    output:
        report(
            "results/claims/verdicts.md",
            caption="../report/verdicts.rst",
            category="Claims",
            labels={"result": "verdicts"},
        ),
        expand(
            "results/claims/{name}.{kind}",
            name=CLAIM_TABLES,
            kind=["parquet", "csv"],
        ),
    log:
        "logs/claims.log",
    conda:
        ENVIRONMENT
    message:
        "Checking the claims"
    shell:
        "gpuatlas claims --results results --claims config/claims.yaml &> {log}"


# A rule a figure, because a caption's file cannot depend on a wildcard.
for figure in FIGURES:

    rule:
        name:
            f"figure_{figure}"
        input:
            rules.compare.output,
            rules.claims.output if figure in CLAIM_FIGURES else [],
            figure_sources(figure),
        output:
            report(
                f"results/figures/{figure}.svg",
                caption=f"../report/{figure}.rst",
                category="Figures",
                labels={"figure": figure.replace("_", " ")},
            ),
            multiext(f"results/figures/{figure}", ".png", ".pdf", ".csv"),
        log:
            f"logs/figures/{figure}.log",
        localrule: True
        conda:
            ENVIRONMENT
        params:
            figure=figure,
        message:
            "Drawing {params.figure}"
        shell:
            "gpuatlas figures --results results --figure {params.figure} &> {log}"
