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
        # Tables of cells that are no longer in the study would be read with the others; captures are kept.
        present = [f"architecture={cell.architecture}/target={cell.target}" for cell in STUDY.present()]
        for folder in Path("results/tables").glob("*/*/*"):
            if "/".join(folder.parts[-2:]) not in present:
                shutil.rmtree(folder)
        for path, content in (
            (output.study, params.study),
            (output.config, params.config),
        ):
            Path(path).write_text(json.dumps(content, indent=2, sort_keys=False) + "\n")


rule compare:
    input:
        "results/study.json",
        manifests(),
        tables_of(STUDY.present()),
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
            rules.claims.output,
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
