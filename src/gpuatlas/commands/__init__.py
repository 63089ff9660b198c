"""The commands of `gpuatlas`, a module a stage; `register` adds a module's commands."""

from types import ModuleType


def modules() -> list[ModuleType]:
    """Return the command modules in the order in which `gpuatlas --help` lists them."""
    from gpuatlas.commands import capture, cluster, publish, reports, study, training

    return [training, capture, cluster, reports, study, publish]
