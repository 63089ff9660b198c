# Small workflows on real clusters: the project's own helpers, site files, launcher and profile around a stand-in for
# the training. case.json says which cells, for how many minutes, and what they run.
import json

configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


CASE = json.load(open("case.json"))
MINUTES["train"] = CASE.get("minutes", 10)


rule all:
    default_target: True
    localrule: True
    input:
        expand("results/{cell}.txt", cell=CASE["cells"]),
        expand("results/{cell}.second", cell=CASE.get("second", [])),


rule train_cell:
    output:
        "results/{cell}.txt",
    log:
        "logs/{cell}.log",
    wildcard_constraints:
        cell="[^/]+/[^/.]+",
    threads: site_threads
    resources:
        **site_resources("train"),
    params:
        launch=launcher,
        command=lambda wildcards: CASE["commands"].get(wildcards.cell, CASE["command"]),
    shell:
        "{params.launch} {params.command} {output} .state/{wildcards.cell} &> {log}"


rule time_cell:
    input:
        "results/{cell}.txt",
    output:
        "results/{cell}.second",
    log:
        "logs/{cell}_second.log",
    threads: site_threads
    resources:
        **site_resources("train"),
    shell:
        "cp {input} {output} &> {log}"
