"""Claims as data: config/claims.yaml, validated against its JSON schema and the catalogue."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuatlas import config
from gpuatlas.compare import catalog
from gpuatlas.errors import ConfigError

SCHEMA = Path("workflow") / "schemas" / "claims.schema.yaml"
CATALOG = "the names are in config/README.md"
RELATIVE_KINDS = ("near", "ratio", "rises", "falls")


@dataclass(frozen=True)
class Check:
    """One measurement that a claim rests on (the keys are those of claims.schema.yaml)."""

    metric: str
    classes: tuple[str, ...]
    kind: str
    expected: float | None
    tolerance: float
    partly: float | None
    target: str
    reference_target: str | None
    reference_architecture: str | None
    note: str | None

    @property
    def relative(self) -> bool:
        """Whether the check needs a second cell."""
        return self.kind in RELATIVE_KINDS

    def reference(self, architecture: str) -> tuple[str, str]:
        """Return architecture and target of the cell that a cell of `architecture` is compared with."""
        return self.reference_architecture or architecture, self.reference_target or self.target


@dataclass(frozen=True)
class Reported:
    """A number that the source prints."""

    architecture: str
    target: str
    metric: str
    value: float


@dataclass(frozen=True)
class Claim:
    """A published claim and what must be measured before it can be said to hold."""

    name: str
    text: str
    source: str
    architectures: tuple[str, ...]
    target: str
    checks: tuple[Check, ...]
    reported: tuple[Reported, ...]


def schema_path(claims: Path) -> Path:
    """Return the JSON schema for a claims file: of the project that the file lies in, else of this one."""
    beside = claims.resolve().parent.parent / SCHEMA
    return beside if beside.is_file() else Path(__file__).resolve().parents[3] / SCHEMA


def load_claims(path: Path) -> list[Claim]:
    """Read and validate a claims file.

    Parameters
    ----------
    path
        ``config/claims.yaml``. Architectures and targets are checked against architectures.yaml and
        targets.yaml where those lie beside it.

    Raises
    ------
    ConfigError
        One sentence that names the file, the claim, the key and the nearest valid name.
    """
    raw = config.read_yaml(path)
    config.validate(raw, config.read_yaml(schema_path(path)), str(path))
    beside = {
        key: list(config.read_yaml(path.parent / f"{key}.yaml"))
        for key in ("architectures", "targets")
        if (path.parent / f"{key}.yaml").is_file()
    }
    claims: list[Claim] = []
    for entry in raw["claims"]:
        where = f"{path}: claim {entry['id']!r}"
        if entry["id"] in {claim.name for claim in claims}:
            raise ConfigError(f"{where}: key 'id': the name is used twice; rename one of the claims")
        _known_cells(entry, beside, where)
        claims.append(
            Claim(
                entry["id"],
                entry["text"],
                entry["source"],
                tuple(entry["architectures"]),
                entry["target"],
                tuple(_checks(entry, where)),
                tuple(_reported(entry, where)),
            )
        )
    return claims


def _known_cells(entry: dict[str, Any], beside: dict[str, list[str]], where: str) -> None:
    """Check that every architecture and target of a claim exists."""
    used = [("architectures", "architectures", name) for name in entry["architectures"]]
    used.append(("target", "targets", entry["target"]))
    places = [("", entry)]
    places += [(f"checks[{i}].", check) for i, check in enumerate(entry["checks"])]
    places += [(f"reported[{i}].", number) for i, number in enumerate(entry.get("reported", []))]
    for prefix, place in places:
        if prefix:
            used += [(f"{prefix}target", "targets", place["target"])] if "target" in place else []
            if "architecture" in place:
                used.append((f"{prefix}architecture", "architectures", place["architecture"]))
        for key, name in place.get("reference", {}).items():
            used.append((f"{prefix}reference.{key}", f"{key}s", name))
    for key, kind, name in used:
        if kind in beside and name not in beside[kind]:
            raise ConfigError(
                f"{where}: key {key!r}: unknown {kind[:-1]} {name!r}{config.nearest(name, beside[kind])}"
            )


def _known_metric(name: str, key: str, where: str) -> catalog.Metric:
    known = catalog.load().known
    if name not in known:
        raise ConfigError(
            f"{where}: key {key!r}: unknown metric {name!r}{config.nearest(name, known, CATALOG)}"
        )
    return known[name]


def _checks(entry: dict[str, Any], where: str) -> Iterable[Check]:
    classes = [c.name for c in catalog.load().classes]
    for number, raw in enumerate(entry["checks"]):
        reference = raw.get("reference", entry.get("reference", {}))
        if raw["kind"] in RELATIVE_KINDS and not reference:
            raise ConfigError(
                f"{where}: key 'checks[{number}].kind': {raw['kind']!r} needs a 'reference' cell; add one"
            )
        for name in raw.get("classes", []):
            if name not in classes:
                key = f"checks[{number}].classes"
                raise ConfigError(
                    f"{where}: key {key!r}: unknown class {name!r}{config.nearest(name, classes)}"
                )
        if raw["kind"] == "ratio" and raw["expected"] <= 0:
            raise ConfigError(
                f"{where}: key 'checks[{number}].expected': {raw['expected']} is no ratio; give one above 0"
            )
        metrics = raw["metric"] if isinstance(raw["metric"], list) else [raw["metric"]]
        for name in metrics:
            metric = _known_metric(name, f"checks[{number}].metric", where)
            if "classes" in raw and not metric.additive:
                raise ConfigError(
                    f"{where}: key 'checks[{number}].classes': {name!r} of several classes cannot be added; "
                    "use 'time_share' or a sum"
                )
            if name in ("time_share", "launch_share") and "classes" not in raw:
                raise ConfigError(
                    f"{where}: key 'checks[{number}].metric': {name!r} needs 'classes'; add them"
                )
            yield Check(
                name,
                tuple(raw.get("classes", ())),
                raw["kind"],
                raw.get("expected"),
                float(raw.get("tolerance", 0)),
                raw.get("partly"),
                raw.get("target", entry["target"]),
                reference.get("target"),
                reference.get("architecture"),
                raw.get("note"),
            )


def _reported(entry: dict[str, Any], where: str) -> Iterable[Reported]:
    for number, raw in enumerate(entry.get("reported", [])):
        _known_metric(raw["metric"], f"reported[{number}].metric", where)
        yield Reported(raw["architecture"], raw["target"], raw["metric"], float(raw["value"]))
