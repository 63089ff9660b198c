"""Reads and validates the configuration, and plans the study from it: which cells, by whom, or why not.

The JSON schemas (``workflow/schemas``) hold every key with its description; an error is one sentence that
names the file, the key and, for a misspelt one, the nearest valid key.
"""

import difflib
import math
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from gpuatlas.errors import ConfigError

SCHEMA_VERSION = 1
REPORT_NAME = "report.ncu-repz"
RECORDING = (REPORT_NAME, "plan.json", "environment.json")
TIMING = ("timings.parquet", "timeline.parquet", "evidence.json", "environment.json")
QUALITY = Path("quality") / "quality.json"


@dataclass(frozen=True)
class Cell:
    """One architecture × target, and where its capture comes from.

    `origin` is ``recorded`` (replayed from the recordings folder), ``imported`` (a report that the user has),
    ``captured`` (by `site`) or ``absent`` (for `reason`). `quality` is the comparison of its target's quality
    with baseline's, where there is one: whatever the capture is.
    """

    architecture: str
    target: str
    origin: str
    site: str | None = None
    source: str | None = None
    reason: str | None = None
    quality: str | None = None

    @property
    def name(self) -> str:
        """The cell as it is written everywhere, for instance ``a100/opt1``."""
        return f"{self.architecture}/{self.target}"


@dataclass(frozen=True)
class Study:
    """The whole configuration, validated and merged, with its plan of cells."""

    root: Path
    config: dict[str, Any]
    architectures: dict[str, dict[str, Any]]
    targets: dict[str, dict[str, Any]]
    sites: dict[str, dict[str, Any]]
    site: str
    cells: tuple[Cell, ...] = field(default=())

    def present(self) -> list[Cell]:
        """Return the cells that have a capture, or will have one."""
        return [cell for cell in self.cells if cell.origin != "absent"]

    def of_origin(self, origin: str) -> list[Cell]:
        """Return the cells whose capture comes from `origin`."""
        return [cell for cell in self.cells if cell.origin == origin]

    def cell(self, name: str) -> Cell:
        """Return the cell called `name` (``architecture/target``).

        Raises
        ------
        ConfigError
            If the study has no such cell.
        """
        for cell in self.cells:
            if cell.name == name:
                return cell
        architecture, _, target = name.partition("/")
        parts = {"architectures": (architecture, self.architectures), "targets": (target, self.targets)}
        if all(part in known for part, known in parts.values()):
            left_out = " and ".join(
                f"{part} to {key}" for key, (part, _) in parts.items() if part not in self.config[key]
            )
            raise ConfigError(f"cell {name!r} is not in this study; add {left_out} in config/config.yaml")
        raise ConfigError(f"cell {name!r} is not in this study{nearest(name, [c.name for c in self.cells])}")

    def as_json(self) -> dict[str, Any]:
        """Return what ``results/study.json`` holds: the study as configured, without this machine's paths."""
        return {
            "schema": SCHEMA_VERSION,
            "site": self.site,
            "workload": self.config["workload"],
            "architectures": {
                name: {
                    "label": entry["label"],
                    "generation": entry["generation"],
                    "compute_capability": entry["compute_capability"],
                    "sm_counts": entry["sm_counts"],
                    "analogue_of": entry.get("analogue_of"),
                }
                for name, entry in self.architectures.items()
                if name in self.config["architectures"]
            },
            "targets": {
                name: entry for name, entry in self.targets.items() if name in self.config["targets"]
            },
            "cells": [
                {
                    "cell": cell.name,
                    **{k: v for k, v in asdict(cell).items() if k not in ("source", "quality")},
                }
                for cell in self.cells
            ],
        }


class _TwiceError(yaml.MarkedYAMLError):
    """A key is given twice in one mapping."""


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which would silently take the last of two equal keys, and here takes none."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line = key.start_mark.line + 1
            if key.value in lines:
                twice = f"key {key.value!r} is given twice (lines {lines[key.value]} and {line})"
                raise _TwiceError(problem=twice)
            lines[key.value] = line
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one YAML mapping.

    Raises
    ------
    ConfigError
        If the file is missing, is not YAML, is not a mapping, or gives a key twice.
    """
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except _TwiceError as error:
        raise ConfigError(f"{path}: {error.problem}; keep one of them") from error
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise ConfigError(f"{path}: is not valid YAML{where}; correct the file") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: must hold 'key: value' pairs; see config/README.md")
    odd = _odd_key(loaded)
    if odd is not None:
        raise ConfigError(f"{path}: key {odd!r} is not a text; put it in quotes")
    return loaded


def _odd_key(value: object) -> object:
    """Return a key that YAML read as a number, a truth value or a date; None if there is none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                return key if key is not None else "null"
            odd = _odd_key(inner)
            if odd is not None:
                return odd
    return None


def validate(value: object, schema: Mapping[str, Any], where: str) -> None:
    """Validate `value` against a JSON schema.

    Raises
    ------
    ConfigError
        With one sentence: `where` (the file), the key, what is wrong, and the nearest valid key.
    """
    wrong = violation(value, schema)
    if wrong is not None:
        raise ConfigError(f"{where}: {wrong}")


def violation(value: object, schema: Mapping[str, Any]) -> str | None:
    """Return how `value` violates a JSON schema: the key, what is wrong, the nearest valid key.

    A number that is infinite or none (NaN), which no schema can refuse, violates every schema.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    for key, number in _not_finite(value):
        return f"key {key!r}: {number} is no finite number"
    error = best_match(Draft202012Validator(schema).iter_errors(value))
    if error is None:
        return None
    path = ".".join(str(part) for part in error.absolute_path)
    at = f"key {path!r}: " if path else ""
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = list(error.schema.get("properties", {}))
        patterns = list(error.schema.get("patternProperties", {}))
        unknown = [
            key
            for key in error.instance
            if key not in known and not any(re.search(pattern, str(key)) for pattern in patterns)
        ]
        key = str(unknown[0])
        dotted = f"{path}.{key}" if path else key
        return f"unknown key {dotted!r}{nearest(key, known)}"
    hint = error.schema.get("description") if isinstance(error.schema, dict) else None
    message = error.message if len(error.message) < 200 else f"is not valid ({error.validator})"
    if error.validator == "pattern" and hint:  # says what the pattern asks for, for people to read
        message = f"{str(error.instance)[:100]!r} is not of its form"
    return f"{at}{message}{f' ({hint})' if hint else ''}"


def _not_finite(value: object, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield key, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, held in inner:
        yield from _not_finite(held, f"{key}.{name}" if key else str(name))


def nearest(word: str, valid: Iterable[str], otherwise: str | None = None) -> str:
    """Return the end of a sentence about an unknown name: the nearest valid one, else `otherwise`, or all."""
    known = list(valid)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    if otherwise is not None:
        return f"; {otherwise}"
    return f"; valid: {', '.join(known)}" if known else ""


def _schema(root: Path, name: str) -> dict[str, Any]:
    return read_yaml(root / "workflow" / "schemas" / f"{name}.schema.yaml")


def load_named(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """Read and validate ``config/{name}.yaml`` (architectures or targets)."""
    entries = read_yaml(root / "config" / f"{name}.yaml")
    validate(entries, _schema(root, name), f"config/{name}.yaml")
    return entries


def load_capture(root: Path) -> dict[str, Any]:
    """Return what captures measure: section ``capture`` of the study's ``config/config.yaml``, validated.

    Raises
    ------
    ConfigError
        If the file is missing or not valid.
    """
    settings = read_yaml(root / "config" / "config.yaml")
    validate(settings, _schema(root, "config"), "config/config.yaml")
    return dict(settings["capture"])


def load_site(root: Path, name: str) -> dict[str, Any]:
    """Read and validate the site file ``config/sites/{name}.yaml``.

    Raises
    ------
    ConfigError
        If there is no such site, or its file, config/architectures.yaml or GPUATLAS_ACCOUNT is not valid.
    """
    path = root / "config" / "sites" / f"{name}.yaml"
    known = _site_names(root)
    if name not in known:
        raise ConfigError(f"config key 'site': there is no config/sites/{name}.yaml{nearest(name, known)}")
    site, schema = read_yaml(path), _schema(root, "site")
    validate(site, schema, f"config/sites/{name}.yaml")
    missing = "{!r} is not in config/architectures.yaml"
    architectures = load_named(root, "architectures")
    _check_names(f"sites/{name}.yaml", "architectures", site["architectures"], architectures, missing)
    slurm = site.get("slurm")
    if slurm and slurm["stop_warning_s"] >= 60 * slurm["time_limit_min"]:
        raise ConfigError(
            f"config/sites/{name}.yaml: key 'slurm.stop_warning_s': {slurm['stop_warning_s']} s are not less "
            f"than the time limit of {slurm['time_limit_min']} min; lower it"
        )
    account = os.environ.get("GPUATLAS_ACCOUNT")
    if account and site["scheduler"] == "slurm":
        keys = schema["properties"]["slurm"]["properties"]
        validate(account, keys["account"], "environment variable GPUATLAS_ACCOUNT")
        site["slurm"]["account"] = account
    return site


def detect_site(root: Path) -> str:
    """Return the site whose Slurm cluster this machine belongs to, else ``local``."""
    cluster = os.environ.get("SLURM_CLUSTER_NAME", "")
    if not cluster:
        try:
            shown = subprocess.run(
                ["scontrol", "show", "config"], capture_output=True, text=True, timeout=20, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return "local"
        found = re.search(r"^ClusterName\s*=\s*(\S+)", shown, re.MULTILINE)
        cluster = found.group(1) if found else ""
    return cluster if (root / "config" / "sites" / f"{cluster}.yaml").is_file() else "local"


def resolve(config: Mapping[str, Any], root: Path) -> Study:
    """Validate a configuration and plan every cell.

    Parameters
    ----------
    config
        The merged configuration, as Snakemake hands it over (`config/config.yaml` and ``--config``).
    root
        The project's folder: ``config/`` and ``workflow/schemas/`` lie in it.

    Raises
    ------
    ConfigError
        If a key, an architecture, a target, a site or a recording is wrong.
    """
    # `--config smoke=false` arrives as a text.
    settings = {key: {"true": True, "false": False}.get(str(value), value) for key, value in config.items()}
    validate(settings, _schema(root, "config"), "config/config.yaml")
    architectures, targets = load_named(root, "architectures"), load_named(root, "targets")
    for key, valid in (("architectures", architectures), ("targets", targets)):
        _check_names("config.yaml", key, settings[key], valid, f"{{!r}} is not in config/{key}.yaml")
    for name, entry in architectures.items():
        for key, known in (("analogue_of", list(architectures)), ("site", _site_names(root))):
            given = [entry[key]] if key in entry else []
            _check_names("architectures.yaml", f"{name}.{key}", given, known, "unknown {!r}")
    site = detect_site(root) if settings["site"] == "auto" else settings["site"]
    used = {entry["site"] for entry in architectures.values() if "site" in entry}
    sites = {name: load_site(root, name) for name in sorted(used | ({site} - {"all"}) | {"local"})}
    if not (root / settings["recordings_dir"]).is_dir():
        raise ConfigError(
            f"config/config.yaml: key 'recordings_dir': there is no folder {settings['recordings_dir']!r}; "
            "correct the path or make the folder"
        )
    results = root / "results"
    if results.is_symlink() and not results.exists():
        raise ConfigError(
            f"results: is a link that leads nowhere ({results.readlink()}); remove it, or make the folder"
        )
    study = Study(root, settings, architectures, targets, sites, site)
    cells = tuple(
        _with_quality(study, _plan(study, architecture, target))
        for architecture in architectures
        if architecture in settings["architectures"]
        for target in targets
        if target in settings["targets"]
    )
    for key in ("recordings", "quality"):
        known = sorted(cell.name for cell in cells)
        _check_names("config.yaml", key, settings[key], known, "cell {!r} is not in this study")
    return replace(study, cells=cells)


def _check_names(file: str, key: str, names: Iterable[str], known: Iterable[str], wrong: str) -> None:
    """Refuse names that are not known; `wrong` says so, with a place for the name."""
    for name in names:
        if name not in known:
            raise ConfigError(f"config/{file}: key {key!r}: {wrong.format(name)}{nearest(name, known)}")


def _site_names(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "config" / "sites").glob("*.yaml"))


def _plan(study: Study, architecture: str, target: str) -> Cell:
    name = f"{architecture}/{target}"
    imported = study.config["recordings"].get(name)
    if imported is not None:
        _require_file(study, "recordings", f"the report of {name}", imported)
        return Cell(architecture, target, "imported", source=imported)
    folder = Path(study.config["recordings_dir"]) / architecture / target
    if (study.root / folder).exists():
        beside = [QUALITY, *(Path("timing") / name for name in TIMING)]
        whole = [path for path in beside if (study.root / folder / path.parent).exists()]
        for required in (*map(Path, RECORDING), *whole):
            if not (study.root / folder / required).is_file():
                raise ConfigError(
                    f"{folder / required}: is no regular file, so the recording of {name} is not whole; "
                    f"restore it, or remove the folder {folder}"
                )
        return Cell(architecture, target, "recorded", source=str(folder / REPORT_NAME))
    home = study.architectures[architecture].get("site")
    if study.site == "all" and home is not None:
        return Cell(architecture, target, "captured", site=home)
    if study.site != "all" and architecture in study.sites[study.site]["architectures"]:
        return Cell(architecture, target, "captured", site=study.site)
    if home is None:
        reason = f"no recording, and no site captures {architecture}"
    else:
        reason = f"no recording here; {architecture} is captured at {home}"
    return Cell(architecture, target, "absent", reason=reason)


def _with_quality(study: Study, cell: Cell) -> Cell:
    """Return the cell with its comparison of quality: the user's own, else the one of its recording."""
    given = study.config["quality"].get(cell.name)
    if given is not None:
        _require_file(study, "quality", f"the comparison of {cell.name}", given)
        return replace(cell, quality=given)
    if cell.origin == "recorded" and cell.source is not None:
        recorded = Path(cell.source).parent / QUALITY
        if (study.root / recorded).is_file():
            return replace(cell, quality=str(recorded))
    return cell


def _require_file(study: Study, key: str, what: str, path: str) -> None:
    """Refuse a path of the configuration that is no regular file."""
    if not (study.root / path).is_file():
        wrong = "is not a regular file" if (study.root / path).exists() else "does not exist"
        raise ConfigError(
            f"config/config.yaml: key {key!r}: {what} ({path}) {wrong}; correct the path or remove the entry"
        )
