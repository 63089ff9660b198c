"""The catalogue (catalog.yaml) as data: kernel classes, metrics and their rollup, names for claims."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import yaml

Product = tuple[float, tuple[str, ...]]


@dataclass(frozen=True)
class Formula:
    """A sum of products over the columns of a launch, for instance ``2 * a.sum + b.sum``."""

    text: str
    products: tuple[Product, ...]

    @classmethod
    def parse(cls, text: str) -> "Formula":
        """Read a formula: products joined by `` + ``, factors by `` * ``."""
        products = []
        for product in str(text).split(" + "):
            constant, names = 1.0, []
            for factor in product.split(" * "):
                try:
                    constant *= float(factor)
                except ValueError:
                    names.append(factor.strip())
            products.append((constant, tuple(names)))
        return cls(str(text), tuple(products))

    def names(self) -> Iterator[str]:
        """Yield the columns that the formula needs."""
        for _, names in self.products:
            yield from names


@dataclass(frozen=True)
class Candidate:
    """One way to compute a metric: `denominator` is None for a plain sum; `scale` multiplies a ratio."""

    numerator: Formula
    denominator: Formula | None
    scale: float
    note: str | None


@dataclass(frozen=True)
class Metric:
    """A figure of the comparison and how it is rolled up over launches."""

    name: str
    title: str
    unit: str
    candidates: tuple[Candidate, ...] = ()
    per_cc: tuple[tuple[str, tuple[Candidate, ...]], ...] = ()
    additive: bool = False

    def candidates_for(self, compute_capability: str) -> tuple[Candidate, ...]:
        """Return the candidates in order, those of this compute capability first."""
        return dict(self.per_cc).get(compute_capability, ()) + self.candidates


@dataclass(frozen=True)
class KernelClass:
    """A class of kernels and what recognises its names."""

    name: str
    title: str
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Catalog:
    """Everything in catalog.yaml."""

    classes: tuple[KernelClass, ...]
    metrics: dict[str, Metric]
    instructions: dict[str, Metric]
    stalls: dict[str, Metric]
    computed: dict[str, Metric]

    @cached_property
    def known(self) -> dict[str, Metric]:
        """Every metric that the tables under results/compare hold and a claim may name."""
        shares = {
            f"instruction_share_{kind}": Metric(
                f"instruction_share_{kind}", f"{m.title} instructions, share of all", "%"
            )
            for kind, m in ((name.removeprefix("instructions_"), m) for name, m in self.instructions.items())
        }
        return {**self.metrics, **self.instructions, **shares, **self.stalls, **self.computed}

    def columns(self) -> set[str]:
        """Return the Nsight Compute metrics that any formula needs."""
        found: set[str] = set()
        for metric in (*self.metrics.values(), *self.instructions.values(), *self.stalls.values()):
            every = [*metric.candidates, *(c for _, cs in metric.per_cc for c in cs)]
            for candidate in every:
                found.update(candidate.numerator.names())
                if candidate.denominator is not None:
                    found.update(candidate.denominator.names())
        return found - {"duration_ns", "gpu_ns", "launches"}

    def title(self, metric: str, classes: Sequence[str] = ()) -> str:
        """Return what a metric is called, with the titles of the kernel classes that it is added over."""
        of = f" ({' + '.join(self.class_title(name) for name in classes)})" if classes else ""
        return self.known[metric].title + of

    def class_title(self, name: str) -> str:
        """Return the title of a kernel class."""
        return next(c.title for c in self.classes if c.name == name)


def _weighted(value: str, weight: str) -> Formula:
    """Return ``value * weight``, product by product."""
    products = Formula.parse(value).products
    extra = Formula.parse(weight).products[0]
    return Formula(value, tuple((c * extra[0], (*names, *extra[1])) for c, names in products))


def _candidate(entry: Any, rollup: str, scale: float) -> Candidate:
    if isinstance(entry, str | int | float):
        entry = {rollup: entry}
    note = entry.get("note")
    if "numerator" in entry:
        numerator, denominator = Formula.parse(entry["numerator"]), Formula.parse(entry["denominator"])
        return Candidate(numerator, denominator, scale, note)
    if "mean" in entry:
        weight = entry.get("weight", "duration_ns")
        return Candidate(_weighted(entry["mean"], weight), Formula.parse(weight), 1.0, note)
    return Candidate(Formula.parse(entry["sum"]), None, 1.0, note)


def _metric(name: str, entry: dict[str, Any]) -> Metric:
    rollup, scale = entry["rollup"], float(entry.get("scale", 1))
    return Metric(
        name,
        entry["title"],
        entry["unit"],
        tuple(_candidate(c, rollup, scale) for c in entry["candidates"]),
        tuple(
            (cc, tuple(_candidate(c, rollup, scale) for c in candidates))
            for cc, candidates in entry.get("per_cc", {}).items()
        ),
        additive=rollup == "sum",
    )


@cache
def load() -> Catalog:
    """Return the catalogue that ships with the package."""
    raw = yaml.safe_load(files("gpuatlas.compare").joinpath("catalog.yaml").read_text(encoding="utf-8"))
    stalls = raw["stalls"]
    return Catalog(
        classes=tuple(
            KernelClass(c["name"], c["title"], re.compile("|".join(c["patterns"]), re.IGNORECASE))
            for c in raw["classes"]
        ),
        metrics={name: _metric(name, entry) for name, entry in raw["metrics"].items()},
        instructions={
            f"instructions_{kind}": Metric(
                f"instructions_{kind}",
                entry["title"],
                "inst",
                tuple(_candidate(c, "sum", 1.0) for c in entry.get("candidates", [])),
                additive=True,
            )
            for kind, entry in raw["instructions"].items()
        },
        stalls={
            f"stall_{reason}": Metric(
                f"stall_{reason}",
                title,
                "cycle/inst",
                tuple(
                    _candidate(
                        {"mean": stalls["metric"].format(reason=reason), "weight": weight}, "mean", 1.0
                    )
                    for weight in stalls["weight"]
                ),
            )
            for reason, title in stalls["reasons"].items()
        },
        computed={
            name: Metric(name, entry["title"], entry["unit"], additive=bool(entry.get("additive", False)))
            for name, entry in raw["computed"].items()
        },
    )
