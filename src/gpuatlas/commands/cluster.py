"""Run commands at a site, and build the images that they run in."""

from pathlib import Path
from typing import Annotated

import typer

from gpuatlas import console

Stack = Annotated[str, typer.Option(help="A stack of containers/stacks.yaml.")]
BuildArg = Annotated[
    list[str] | None, typer.Option("--build-arg", help="NAME=VALUE of the recipe; may be repeated.")
]


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    app.command("launch")(launch)
    image = typer.Typer(no_args_is_help=True, help="Container images.")
    image.command("docker")(image_docker)
    image.command("archive")(image_archive)
    image.command("sif")(image_sif)
    image.command("record")(image_record)
    image.command("check")(image_check)
    app.add_typer(image, name="image")


def launch(
    command: Annotated[list[str], typer.Argument(help="What to run, after --.")],
    *,
    site: Annotated[str, typer.Option(help="A file of config/sites, without .yaml.")],
    image: Annotated[Path | None, typer.Option(help="A .sif or .docker.json; none: no container.")] = None,
    bind: Annotated[list[Path] | None, typer.Option(help="Folder to show inside; may be repeated.")] = None,
    accept_changed_image: Annotated[
        bool, typer.Option("--accept-changed-image", help="Although its digest is not the recorded one.")
    ] = False,
) -> None:
    """Run a command as a site's jobs run it: modules, image, one GPU, scratch, clean environment."""
    from gpuatlas.config import load_site
    from gpuatlas.images import read_record, verify
    from gpuatlas.launch import launch as run

    entry = load_site(Path(), site)
    record = None
    if image is not None:
        record = read_record(image)
        if not accept_changed_image:
            verify(record)
    raise typer.Exit(run(site, entry, record, command, bind or ()))


def image_docker(
    *,
    stack: Stack = "common",
    out: Annotated[Path, typer.Option(help="The record, NAME.docker.json.")],
    build_arg: BuildArg = None,
    network: Annotated[str, typer.Option(help="Network of the build, as docker build has it.")] = "default",
) -> None:
    """Build a stack's Docker image and record its digest and packages."""
    from gpuatlas.imagebuild import build_docker

    image = build_docker(Path(), stack, out, given=build_arg or (), network=network)
    console.say(f"{image.reference} {image.digest}")


def image_archive(
    *,
    image: Annotated[Path, typer.Option(help="The record of a Docker image.")],
    out: Annotated[Path, typer.Option(help="The archive, NAME.docker.tar.")],
) -> None:
    """Save a Docker image as an archive for sites without Docker."""
    from gpuatlas.imagebuild import save_archive

    save_archive(image, out)


def image_sif(
    *,
    stack: Stack = "common",
    out: Annotated[Path, typer.Option(help="The image, NAME.sif; its record lies beside it.")],
    source: Annotated[str, typer.Option("--from", help="archive, definition or registry.")] = "archive",
    archive: Annotated[Path | None, typer.Option(help="The archive [default: containers/images].")] = None,
    build_arg: BuildArg = None,
) -> None:
    """Build a stack's Apptainer image and record its digest and packages."""
    from gpuatlas.errors import ConfigError
    from gpuatlas.imagebuild import build_sif

    if source not in ("archive", "definition", "registry"):
        raise ConfigError(f"--from {source}: choose archive, definition or registry")
    image = build_sif(Path(), stack, out, source=source, archive=archive, given=build_arg or ())
    console.say(f"{image.path} {image.digest}")


def image_record(
    path: Annotated[Path, typer.Argument(help="A .sif that you have.")],
    *,
    stack: Stack = "common",
) -> None:
    """Record the digest and packages of an Apptainer image that you have."""
    from gpuatlas.imagebuild import record_sif

    image = record_sif(path, stack=stack)
    console.say(f"{image.path} {image.digest}")


def image_check(paths: Annotated[list[Path], typer.Argument(help="Images: .sif or .docker.json.")]) -> None:
    """Check that images are the recorded ones."""
    from gpuatlas.images import read_record, verify

    for path in paths:
        image = read_record(path)
        verify(image)
        console.say(f"{path}: {image.digest}")
