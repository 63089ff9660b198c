# Pages that people read.


rule report_page:
    input:
        rules.claims.output,
        expand("results/figures/{figure}.{kind}", figure=FIGURES, kind=["svg", "csv"]),
        expand("workflow/report/{figure}.rst", figure=FIGURES),
        smoke_files(),
        stage_sources("report"),
    output:
        report(
            "results/report.html",
            caption="../report/report.rst",
            category="Report",
            labels={"result": "the study on one page"},
        ),
    log:
        "logs/report.log",
    conda:
        ENVIRONMENT
    message:
        "Writing results/report.html"
    shell:
        "gpuatlas report --results results &> {log}"


# Snakemake's own report, built by Snakemake itself from the finished run.
rule workflow_report:
    input:
        rules.report_page.output,
        rules.claims.output,
        expand("results/figures/{figure}.svg", figure=FIGURES),
        expand(
            "workflow/report/{name}.rst",
            name=[*FIGURES, "workflow", "verdicts", "report"],
        ),
        config=rules.study.output.config,
    output:
        "results/workflow-report.zip",
    log:
        "logs/workflow_report.log",
    conda:
        ENVIRONMENT
    message:
        "Writing Snakemake's own report"
    shell:
        "snakemake --configfile {input.config} --report {output} --nolock report_page &> {log}"


# Another run may have brought cells that this study has not: their captures are kept, not packed, and their tables
# would be read with the others.
rule unpacked:
    output:
        "results/unpacked.txt",
    log:
        "logs/unpacked.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        left_out=left_out(),
    message:
        "Listing what is not published"
    run:
        forget_absent_cells()
        write_text(Path(output[0]), "".join(f"{line}\n" for line in params.left_out))
