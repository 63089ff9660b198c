"""Optimisation targets: data, read from a file without torch.

`gpuatlas.workload.apply` puts one into effect.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuatlas.config import nearest, read_yaml
from gpuatlas.errors import ConfigError

CHOICES = {
    "precision": ("ieee", "tf32", "bf16"),
    "layout": ("contiguous", "channels_last_3d"),
    "compile": ("none", "default", "max-autotune"),
}
SETTINGS = ("precision", "layout", "compile", "fused", "graphs", "autotune")
"""The keys of a target that change what is run."""
EVIDENCE = {
    "tensor_time_min": "least share of convolution and GEMM time in tensor-op kernels",
    "tensor_time_max": "greatest share of convolution and GEMM time in tensor-op kernels",
    "bf16_time_min": "least share of convolution and GEMM time in bfloat16 kernels",
    "compiled_time_min": "least share of GPU time in kernels that the compiler generated",
    "channels_last_min": "least share of convolutions that compute channels-last",
    "channels_last_max": "greatest share of convolutions that compute channels-last",
    "layout_time_change_min": "least relative change of layout-conversion time against the reference",
}
"""What `evidence` of a target may ask for; each value is a share in [0, 1]."""


@dataclass(frozen=True)
class Target:
    """One optimisation target.

    Attributes
    ----------
    precision
        Arithmetic of matmul *and* cuDNN convolution: `ieee` float32, `tf32`, or `bf16` (autocast; what
        autocast leaves in float32 may use TF32).
    layout
        Memory format of parameters and activations.
    compile
        `none`, or the mode of torch.compile.
    fused
        Name of a set of fused kernels, or `none`.
    graphs
        Replay the compiled regions as CUDA graphs.
    autotune
        cuDNN's search for the fastest algorithm (`torch.backends.cudnn.benchmark`).
    min_cc
        Lowest compute capability (major, minor) on which the target can take effect.
    evidence
        Thresholds by the names of `EVIDENCE`.
    """

    name: str
    label: str
    description: str
    precision: str
    layout: str
    compile: str
    fused: str
    graphs: bool
    autotune: bool
    min_cc: tuple[int, int]
    evidence: dict[str, float]

    @property
    def settings(self) -> dict[str, str | bool]:
        """What the target changes, as records keep it: a run under other settings is another run."""
        return {name: getattr(self, name) for name in SETTINGS}


def load_targets(path: Path) -> dict[str, Target]:
    """Return the targets of the YAML file `path`, in its order.

    Raises
    ------
    ConfigError
        The file cannot be read, or a key or value is wrong: the message names both.
    """
    held = read_yaml(path)
    if not held:
        raise ConfigError(f"{path} holds no targets: expected a mapping of names to settings.")
    return {name: _target(path, name, entry) for name, entry in held.items()}


def load_target(path: Path, name: str) -> Target:
    """Return one target of `path`, or raise `ConfigError` naming the nearest."""
    targets = load_targets(path)
    if name not in targets:
        raise ConfigError(f"{path} has no target '{name}'{nearest(name, targets)}")
    return targets[name]


def _target(path: Path, name: str, entry: Any) -> Target:
    where = f"{path}: target '{name}'"
    keys = [key for key in Target.__dataclass_fields__ if key != "name"]
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is not a mapping; give it {', '.join(keys)}.")
    for key in entry:
        if key not in keys:
            raise ConfigError(f"{where} has an unknown key '{key}'{nearest(str(key), keys)}")
    for key in keys:
        if key not in entry:
            raise ConfigError(f"{where} lacks the key '{key}'.")
    for key, allowed in CHOICES.items():
        if entry[key] not in allowed:
            raise ConfigError(f"{where}: {key} is '{entry[key]}'; choose one of {', '.join(allowed)}.")
    for key in ("graphs", "autotune"):
        if not isinstance(entry[key], bool):
            raise ConfigError(f"{where}: {key} is '{entry[key]}'; write true or false.")
    if entry["graphs"] and entry["compile"] == "none":
        raise ConfigError(f"{where}: graphs need a compiled network; set compile to default or max-autotune.")
    return Target(
        name=name,
        label=str(entry["label"]),
        description=str(entry["description"]),
        precision=entry["precision"],
        layout=entry["layout"],
        compile=entry["compile"],
        fused=str(entry["fused"]),
        graphs=entry["graphs"],
        autotune=entry["autotune"],
        min_cc=_capability(where, entry["min_cc"]),
        evidence=_evidence(where, entry["evidence"]),
    )


def _capability(where: str, value: Any) -> tuple[int, int]:
    major, dot, minor = str(value).partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        raise ConfigError(f"{where}: min_cc is '{value}'; write a compute capability such as \"7.0\".")
    return int(major), int(minor)


def _evidence(where: str, entry: Any) -> dict[str, float]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: evidence is not a mapping of checks to thresholds.")
    for key, value in entry.items():
        if key not in EVIDENCE:
            raise ConfigError(f"{where}: evidence has an unknown check '{key}'{nearest(str(key), EVIDENCE)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ConfigError(f"{where}: evidence '{key}' is '{value}'; give a share between 0 and 1.")
    return {str(key): float(value) for key, value in entry.items()}
