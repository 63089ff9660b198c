"""The study on one page: results/report.html, which needs no other file to be read."""

import base64
import html
import re
from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpuatlas import __version__
from gpuatlas.compare.criteria import SIGNS, criteria, number, title
from gpuatlas.compare.rows import read_rows
from gpuatlas.compare.run import TABLES
from gpuatlas.compare.study import Cell, Study, load_study
from gpuatlas.compare.verdicts import STATUSES, WORDS
from gpuatlas.errors import InputRefused
from gpuatlas.figures import FIGURES
from gpuatlas.figures.sheet import COLUMN
from gpuatlas.files import read_json, sha256, write_text

SMOKE = "Smoke test"
SMOKE_CAPTION = (
    "A few steps of the real network on a small volume, to show that training and sampling run. The weights "
    "are untrained: the picture shows no anatomy. "
)


def write_report(results: Path, captions: Path) -> Path:
    """Write ``results/report.html``.

    Parameters
    ----------
    results
        The results folder, with compare/, claims/ and figures/.
    captions
        Folder with a caption ``{figure}.rst`` for each figure.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ConfigError, InputRefused
        If the study, a table, a figure or a caption is missing or damaged.
    OSError
        If the page cannot be written.
    """
    study = load_study(results)
    rows = read_rows(results / "claims" / "verdicts.parquet")
    checks = read_rows(results / "claims" / "checks.parquet")
    counts = Counter(row["status"] for row in rows)
    judged = {row["claim"] for row in rows if row["status"] != "not_measured"}
    environment = Environment(
        loader=PackageLoader("gpuatlas.publish", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.j2").render(
        title="Training performance of a 3D medical diffusion model across GPU generations",
        workload=_workload(study),
        study=study,
        captured=len(study.captured()),
        statuses=STATUSES,
        words=WORDS,
        counts={status: counts.get(status, 0) for status in STATUSES},
        claims_count=len({row["claim"] for row in rows}),
        signs=SIGNS,
        verdicts=len(rows),
        judged=_verdicts([row for row in rows if row["claim"] in judged], checks),
        unjudged=_verdicts([row for row in rows if row["claim"] not in judged], checks),
        windows=[cell.name for cell in study.captured() if cell.window],
        figures=[_figure(results, captions, name) for name in FIGURES],
        shared=_shared(study),
        trained=[run for name, folder in _trained(results, study) if (run := _training(name, folder))],
        refused=[cell for cell in study.cells if cell.refused],
        cells=[_provenance(cell) for cell in study.cells if not cell.absent],
        absent=[cell for cell in study.cells if cell.absent],
        tables=[(name, sha256(results / "compare" / f"{name}.parquet")) for name in TABLES],
        version=__version__,
    )
    path = results / "report.html"
    write_text(path, page)
    return path


def _workload(study: Study) -> str:
    network, size = study.workload.get("network", "Med-DDPM"), study.workload.get("size")
    return f"Configured for {network}, {size}³" if size else f"Configured for {network}"


def _verdicts(rows: list[dict[str, Any]], checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the table's rows; the first of a claim says what it claims and expects, for the others too."""
    spans = Counter(row["claim"] for row in rows)
    made: list[dict[str, Any]] = []
    for row in rows:
        own = [c for c in checks if all(c[key] == row[key] for key in ("claim", "architecture", "kind"))]
        first = not made or made[-1]["claim"] != row["claim"]
        made.append(
            {
                "claim": row["claim"],
                "text": own[0]["text"],
                "rows": spans[row["claim"]] if first else 0,
                "cell": f"{row['architecture']}/{row['target']}",
                "kind": row["kind"],
                "status": row["status"],
                "measured": _measured(own),
                "source": own[0]["claimed_in"],
                "expected": criteria(own, row["target"]),
                "coverage": "–" if row["coverage"] is None else f"{row['coverage']:.1%}",
                "explanation": row["explanation"],
                "evidence": row["evidence"],
            }
        )
    return made


def _measured(checks: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what was measured by each check of a claim; the metric is named where there are several."""
    known = [check for check in checks if check["measured"] is not None]
    several = len(checks) > 1
    return [(title(c) if several else "", number(c["measured"], c["unit"])) for c in known]


def _figure(results: Path, captions: Path, name: str) -> dict[str, Any]:
    """Return a figure, its caption, and whether it is more than one column of a page wide."""
    drawing, caption = results / "figures" / f"{name}.svg", captions / f"{name}.rst"
    for path in (drawing, caption):
        if not path.is_file():
            raise InputRefused(f"{path}: is missing; draw the figures first, or give --captions their folder")
    svg = drawing.read_text(encoding="utf-8")
    size = re.search(r'viewBox="0 0 ([\d.]+) ', svg)
    return {
        "name": name,
        "svg": inline_svg(svg, name),
        "wide": size is not None and float(size[1]) > 72 * COLUMN + 1,
        "caption": caption_html(caption.read_text(encoding="utf-8")),
    }


def inline_svg(text: str, name: str) -> str:
    """Return an SVG file as an element to put into a page, its identifiers made unique with `name`."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'((?:xlink:)?href)="#', rf'\1="#{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    return re.sub(
        r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text)
    )


def caption_html(text: str) -> str:
    """Return a caption as HTML; of reStructuredText it may hold ``**bold**``, ``*emphasis*`` and code."""
    safe = html.escape(" ".join(text.split()), quote=False)
    safe = re.sub(r"``(.+?)``", r"<code>\1</code>", safe)
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", safe)


def _provenance(cell: Cell) -> dict[str, Any]:
    device, versions = cell.manifest.get("device", {}), cell.manifest.get("versions", {})
    return {
        "name": cell.name,
        "what": f"{cell.origin}; {cell.describe()}",
        "source": cell.manifest.get("source"),
        "notes": cell.manifest.get("notes", []),
        "device": f"{device.get('name', 'unknown')}, cc {device.get('compute_capability', '?')}, "
        f"{device.get('sm_count', '?')} SMs",
        "versions": ", ".join(f"{name} {value}" for name, value in versions.items() if value),
        "step": _step(cell.manifest.get("step")),
        "launches": cell.manifest.get("launches") or "–",
        "time": f"{cell.manifest['gpu_time_ns'] / 1e6:.4g} ms" if cell.manifest.get("gpu_time_ns") else "–",
        "effect": cell.in_effect,
        "files": sorted((cell.manifest.get("files") or {}).items()),
    }


def _shared(study: Study) -> list[list[str]]:
    """Return the names of cells that were imported from the same report."""
    found: dict[str, list[str]] = {}
    for cell in study.cells:
        if source := cell.manifest.get("source"):
            found.setdefault(source["sha256"], []).append(cell.name)
    return [names for names in found.values() if len(names) > 1]


def _step(step: dict[str, Any] | None) -> str:
    """Return what the unprofiled step took, in a sentence; empty where it was not timed."""
    if step is None:
        return ""
    return (
        f"unprofiled step {step['median_ms']:.4g} ms; its timeline: {step['launches']} launches, "
        f"{step['gpu_time_ns'] / 1e6:.4g} ms of GPU time"
    )


def _trained(results: Path, study: Study) -> list[tuple[str, Path]]:
    """Return where training may have left files, each with its heading."""
    cells = [(cell.name, results / "cells" / cell.name / "train") for cell in study.cells]
    return [(SMOKE, results / "smoke"), *cells]


def _training(name: str, folder: Path) -> dict[str, Any] | None:
    """Return what a training left: loss, picture, and a caption from the file's own words."""
    record, picture = folder / "loss.json", folder / "sample.png"
    if not record.is_file() and not picture.is_file():
        return None
    told = read_json(record, "train the cell again") if record.is_file() else {}
    losses = [float(value) for value in told.get("loss", [])]
    parts = [
        f"{told['network']}, {told['size']}³" if "network" in told else "",
        f"{told['iterations']} iterations" if told.get("iterations") else "",
        f"{told['epochs']} epochs" if told.get("epochs") else "",
        f"{told['volumes']} volumes" if told.get("volumes") else "",
        f"seed {told['seed']}" if "seed" in told else "",
    ]
    weights = told.get("sample_weights")
    return {
        "name": name,
        "folder": "smoke" if name == SMOKE else f"cells/{name}/train",
        "caption": (SMOKE_CAPTION if name == SMOKE else "") + ", ".join(part for part in parts if part),
        "curve": _curve(losses) if len(losses) > 1 else "",
        "first": f"{losses[0]:.4g}" if losses else "–",
        "last": f"{losses[-1]:.4g}" if losses else "–",
        "picture": _embedded(picture) if picture.is_file() else "",
        "sample": "Sampled volume, mid-planes" + (f" ({weights} weights)." if weights else "."),
    }


def _embedded(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()


def _curve(losses: list[float]) -> str:
    """Return the loss as a small drawing over an axis from 0, so that a few steps look like what they are."""
    high = max(losses) or 1.0
    last = len(losses) - 1
    points = " ".join(
        f"{40 + 350 * step / last:.1f},{130 - 115 * loss / high:.1f}" for step, loss in enumerate(losses)
    )
    return (
        '<svg viewBox="0 0 400 160" role="img" aria-label="Training loss by step" font-size="11">'
        '<path d="M40 10V130H392" fill="none" stroke="#222" stroke-width="1"/>'
        f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="1.5"/>'
        f'<text x="36" y="18" text-anchor="end">{high:.3g}</text>'
        f'<text x="36" y="130" text-anchor="end">0</text>'
        f'<text x="40" y="146">1</text><text x="392" y="146" text-anchor="end">{len(losses)}</text>'
        '<text x="216" y="156" text-anchor="middle">step</text></svg>'
    )
