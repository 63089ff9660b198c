# One recipe, one lock, two formats of image.


rule docker_image:
    input:
        # What decides is the recipe's digest: a fresh checkout is newer than an image that was copied here.
        ancient("containers/Dockerfile"),
    output:
        "containers/images/{stack}.{format}.json",
    log:
        "logs/image/{stack}_{format}.log",
    wildcard_constraints:
        format="docker",
    localrule: built_here("docker")
    conda:
        ENVIRONMENT
    threads: site_threads
    resources:
        **site_resources("image"),
    params:
        recipe=recipe_of("Dockerfile"),
    message:
        "Building the Docker image of the stack {wildcards.stack}"
    shell:
        "gpuatlas image docker --stack {wildcards.stack} --out {output} &> {log}"


# What travels to sites without Docker.
rule docker_archive:
    input:
        "containers/images/{stack}.docker.json",
    output:
        "containers/images/{stack}.docker.tar",
    log:
        "logs/image/{stack}_archive.log",
    localrule: True
    conda:
        ENVIRONMENT
    message:
        "Saving the Docker image of the stack {wildcards.stack}"
    shell:
        "gpuatlas image archive --image {input} --out {output} &> {log}"


rule sif_image:
    input:
        sif_sources,
    output:
        image="containers/images/{stack}.{format}",
        record="containers/images/{stack}.{format}.json",
    log:
        "logs/image/{stack}_{format}.log",
    wildcard_constraints:
        format="sif",
    localrule: built_here("sif")
    conda:
        ENVIRONMENT
    threads: site_threads
    resources:
        **site_resources("image"),
    params:
        recipe=recipe_of("gpuatlas.def"),
        site=site_name,
        source=lambda wildcards: site_of(wildcards)["container"]["source"],
    message:
        "Building the Apptainer image of the stack {wildcards.stack} from its {params.source}"
    shell:
        "gpuatlas launch --site {params.site} -- gpuatlas image sif --stack {wildcards.stack} --from {params.source}"
        " --out {output.image} &> {log}"
