# The study, and the files of its stages; no rules here.
import os
import re
import shutil
import sys
from pathlib import Path

from gpuatlas import console
from gpuatlas.compare.claimfile import load_claims
from gpuatlas.config import RECORDING, TIMING, resolve
from gpuatlas.errors import ConfigError, GpuatlasError
from gpuatlas.figures import CLAIM_FIGURES, FIGURES
from gpuatlas.files import sha256, write_json, write_text
from gpuatlas.imagebuild import load_stack
from gpuatlas.publish.sources import check_sources
from gpuatlas.submission import (
    archive_path,
    captured_sites,
    check,
    check_given_images,
    lacks_archive,
    remaining,
)

ROOT = Path(str(workflow.current_basedir)).parent.parent
ENVIRONMENT = "../envs/gpuatlas.yaml"

try:
    STUDY = resolve(config, ROOT)
    load_claims(Path("config/claims.yaml"))
    load_stack(ROOT, STUDY.config["stack"])
    check_given_images(STUDY)
except GpuatlasError as error:
    console.fail(str(error))
    sys.exit(error.exit_code)
# What the configuration says, checked: --config smoke=false is no longer a text.
config.update(STUDY.config)

SLURM_SITES = [name for name, site in STUDY.sites.items() if site["scheduler"] == "slurm"]
TRAIN_FILES = ["steps.parquet", "loss.json", "sample.nii.gz", "sample.png", "environment.json"]
TIMING_FILES = list(TIMING)
CLAIM_TABLES = ["verdicts", "checks", "reported"]
TABLES = ["launches", "metrics", "rules", "session"]
COMPARISONS = [
    "summary",
    "classes",
    "kernels",
    "instructions",
    "stalls",
    "roofline",
    "priority",
    "weights",
]
STAGE_SOURCES = {
    "convert": ["ncurep/*.py", "ncurep/*.c", "tables/*.py", "names.py", "capture/refused.py"],
    "describe": [
        "publish/cell.py",
        "publish/recording.py",
        "publish/device.py",
        "tables/read.py",
        "capture/refused.py",
        "capture/represent.py",
        "compare/weights.py",
        "workload/evidence.py",
    ],
    "compare": ["compare/*", "capture/represent.py", "tables/schema.py", "tables/read.py", "names.py"],
    "quality": [
        "publish/quality.py",
        "publish/recording.py",
        "publish/device.py",
        "workload/distance.py",
    ],
    "figures": ["figures/*"],
    "report": ["publish/report.py", "publish/*.j2"],
}
# The rules whose jobs run at a cell's site.
CELL_RULES = ["train_cell", "time_cell", "capture_cell"]


def stage_sources(stage):
    """Source files of a stage: what is computed with them is computed again when they change."""
    package = ROOT / "src" / "gpuatlas"
    return sorted(
        os.path.relpath(path)
        for pattern in STAGE_SOURCES[stage]
        for path in package.glob(pattern)
        if path.is_file()
    )


def figure_sources(figure):
    """Source files of one figure: its own module, and those that all figures share."""
    others = {f"{name}.py" for name in FIGURES if name != figure}
    return [path for path in stage_sources("figures") if Path(path).name not in others]


def cell_of(wildcards):
    """The cell of a job; one that this run cannot have is one sentence, not a missing file."""
    try:
        cell = STUDY.cell(f"{wildcards.architecture}/{wildcards.target}")
        if cell.origin == "absent":
            raise ConfigError(f"cell {cell.name} is absent: {cell.reason}; see docs/rerun.md")
    except GpuatlasError as error:
        console.fail(str(error))
        sys.exit(error.exit_code)
    return cell


def one_of(cells):
    """Regular expression of the names of `cells`; matches nothing if there are none."""
    return "|".join(re.escape(cell.name) for cell in cells) or "(?!)"


def of_origin(origin):
    """Regular expression of the cells whose capture comes from `origin`."""
    return one_of(STUDY.of_origin(origin))


def manifests():
    """The manifests of all cells that have a capture or can have one here."""
    return [f"results/cells/{cell.name}/cell.json" for cell in STUDY.present()]


def published():
    """Every file of the finished study: what is missing is made again."""
    return [
        "results/study.json",
        "results/config.json",
        "results/unpacked.txt",
        *manifests(),
        *tables_of(STUDY.present()),
        *[path for cell in STUDY.present() for path in (*capture_files(cell.name), *measured_files(cell))],
        *quality_files(STUDY.cells),
        *expand("results/compare/{name}.{kind}", name=COMPARISONS, kind=["parquet", "csv"]),
        "results/claims/verdicts.md",
        *expand("results/claims/{name}.{kind}", name=CLAIM_TABLES, kind=["parquet", "csv"]),
        *expand("results/figures/{name}.{kind}", name=FIGURES, kind=["svg", "png", "pdf", "csv"]),
        *smoke_files(),
        "results/report.html",
        "results/workflow-report.zip",
    ]


def capture_files(name):
    """What a capture consists of."""
    return [f"results/cells/{name}/capture/{file}" for file in RECORDING]


def forget_absent_cells():
    """Remove the tables of cells that left the study: they would be read with the others. Captures are kept."""
    present = {(f"architecture={cell.architecture}", f"target={cell.target}") for cell in STUDY.present()}
    for folder in Path("results/tables").glob("*/*/*"):
        if folder.parts[-2:] not in present:
            shutil.rmtree(folder)


def left_out():
    """What `tar` leaves out of published results: states, and what is kept of cells that left the study."""
    cells = {cell.name: cell for cell in STUDY.cells}
    found = ["results/unpacked.txt", ".state"]
    for folder in sorted(Path("results/cells").glob("*/*/*")):
        cell = cells.get("/".join(folder.parts[2:4]))
        shown = cell is not None and (cell.quality if folder.name == "quality" else cell.origin != "absent")
        if not shown and folder.name != ".state":
            found.append(str(folder))
    return found


def forget_quality():
    """Remove the copies of comparisons of quality that left the study: they would be judged with the others."""
    for cell in STUDY.cells:
        if cell.quality is None:
            shutil.rmtree(f"results/cells/{cell.name}/quality", ignore_errors=True)


def say_what_is_left_out():
    """List the cells that this run does not have, and why."""
    for line in remaining(STUDY):
        console.note(f"Not in this run: {line}")


def tables_of(cells):
    """The Parquet tables of `cells`."""
    return [
        f"results/tables/{table}/architecture={cell.architecture}/target={cell.target}/part.parquet"
        for cell in cells
        for table in TABLES
    ]


def measured_files(cell):
    """What a cell's manifest waits for beside the capture: unprofiled times, and training where it is asked for."""
    here = f"results/cells/{cell.name}"
    timing = expand(f"{here}/timing/{{file}}", file=TIMING_FILES)
    if cell.origin == "captured":
        training = expand(f"{here}/train/{{file}}", file=TRAIN_FILES) if config["train"] else []
        return [*timing, *training, *quality_files([cell])]
    recorded = cell.origin == "recorded" and (Path(cell.source).parent / "timing").is_dir()
    return [*(timing if recorded else []), *quality_files([cell])]


def quality_files(cells):
    """The comparisons of quality of those of `cells` that have one."""
    return [f"results/cells/{cell.name}/quality/quality.json" for cell in cells if cell.quality]


def quality_runs(wildcards):
    """The records of the runs beside a cell's comparison of quality."""
    folder = Path(STUDY.cell(wildcards.cell).quality).parent
    return sorted(map(str, folder.glob("quality-*/quality.json")))


def smoke_files():
    """What the report shows of the smoke test, if there is one."""
    return expand("results/smoke/{file}", file=TRAIN_FILES) if config["smoke"] else []


def dataset():
    """The manifest of the training volumes: phantoms are made, your own volumes are taken where they lie."""
    phantom = config["data"].get("phantom")
    if phantom is None:
        return []
    return [f"data/phantom_{phantom['volumes']}x{phantom['size']}_seed{phantom['seed']}/dataset.json"]


def content(wildcards):
    """SHA-256 of a cell's source: what is moved into its place is older than what came of its predecessor.

    A function of the wildcards alone: Snakemake does not compare parameters that depend on the input.
    """
    cell = STUDY.cell(wildcards.cell)
    source = Path(cell.source)
    folder = source.parent
    files = sorted([*folder.glob("*"), *folder.glob("timing/*")]) if cell.origin == "recorded" else [source]
    return [sha256(path) for path in files if path.is_file()]


include: "site.smk"
include: "options.smk"


DATASET = dataset()

# A real run without a needed account is refused before it submits; a dry run starts nothing and is only told.
if workflow.is_main_process:
    for site in captured_sites(STUDY):
        slurm = STUDY.sites[site].get("slurm", {})
        if slurm.get("account_required") and not slurm["account"]:
            console.note(f"No account for {site}: set GPUATLAS_ACCOUNT before jobs go to Slurm")
    # A dry run does not start (see onstart), and it is where one looks for what a run would leave out.
    if workflow.output_settings.dryrun:
        say_what_is_left_out()
        if any(lacks_archive(STUDY, site) for site in captured_sites(STUDY)):
            archive = archive_path(STUDY.config["stack"])
            console.note(
                f"No {archive} here: this machine builds it with Docker, or you copy it here (docs/sites.md)"
            )

# No more jobs at a site than it lets one user submit.
for site in SLURM_SITES:
    workflow.register_resource(f"{site}_jobs", STUDY.sites[site]["slurm"]["jobs"])

# A warned step (SIGTERM) saves its state and ends by itself: its shell must outlive it.
shell.prefix("set -euo pipefail; trap : TERM; ")


onstart:
    forget_quality()
    jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.name in CELL_RULES]
    sites = sorted({site_name(job.wildcards) for job in jobs})
    try:
        check(STUDY, sites, slurm=not workflow.local_exec)
        check_sources(STUDY)
    except GpuatlasError as error:
        console.fail(str(error))
        sys.exit(error.exit_code)
    say_what_is_left_out()
