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
    run:
        for path, content in (
            (output.study, params.study),
            (output.config, params.config),
        ):
            Path(path).write_text(
                json.dumps(content, indent=2, sort_keys=False) + "\n"
            )


rule compare:
    input:
        "results/study.json",
        manifests(),
        tables_of(STUDY.present()),
        stage_sources("compare"),
    output:
        expand(
            "results/compare/{name}.{kind}", name=COMPARISONS, kind=["parquet", "csv"]
        ),
    log:
        "logs/compare.log",
    conda:
        ENVIRONMENT
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
            name=["verdicts", "checks", "reported"],
            kind=["parquet", "csv"],
        ),
    log:
        "logs/claims.log",
    conda:
        ENVIRONMENT
    shell:
        "gpuatlas claims --results results --claims config/claims.yaml &> {log}"


rule figure:
    input:
        rules.claims.output,
        stage_sources("figures"),
    output:
        report(
            "results/figures/{figure}.svg",
            caption="../report/{figure}.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
        multiext("results/figures/{figure}", ".png", ".pdf", ".csv"),
    log:
        "logs/figures/{figure}.log",
    wildcard_constraints:
        figure="|".join(FIGURES),
    conda:
        ENVIRONMENT
    shell:
        "gpuatlas figures --results results --figure {wildcards.figure} &> {log}"
