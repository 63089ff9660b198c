"""What must hold on real clusters, one function each; test_clusters.py runs them side by side.

A case starts Snakemake as a user does, does to it what clusters do, and looks at outputs, at the journal of what was
done by which job, and at Slurm's own accounting.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from tests.slurm.rig import Driver, Rig, wait_until
from tests.slurm.study import SITES, case, copy_study, journal

CASES: dict[str, Callable[[Rig, Path], None]] = {}
SNAKEMAKE = ["snakemake", "--profile", "profiles/slurm", "--config", "site=all"]
V100, A100, H100 = "v100/baseline", "a100/baseline", "h100/baseline"


def listed(run: Callable[[Rig, Path], None]) -> Callable[[Rig, Path], None]:
    CASES[run.__name__] = run
    return run


def start(rig: Rig, folder: Path, *arguments: str, name: str = "output", **environment: str) -> Driver:
    return rig.start_command([*SNAKEMAKE, *arguments], folder, folder / f"{name}.txt", environment)


def states(rig: Rig, folder: Path, cluster: str) -> list[dict[str, str]]:
    """Slurm's own record of the jobs of a folder on a cluster, oldest first."""
    fields = [
        "JobIDRaw",
        "State",
        "Partition",
        "Account",
        "AllocTRES",
        "ReqTRES",
        "TimelimitRaw",
        "NodeList",
        "ReqMem",
    ]
    name = (folder / ".snakemake/slurm_run_name").read_text().strip()
    where = ["-M", cluster, "-X", "-P", "-n", "-S", "now-1hours", f"--name={name}", "-o", ",".join(fields)]
    return [dict(zip(fields, line.split("|"), strict=True)) for line in rig.ask("sacct", *where).splitlines()]


def wait_for_ticks(folder: Path, cell: str, ticks: int, driver: Driver, seconds: float = 240) -> None:
    state = folder / ".state" / cell

    def reached() -> bool:
        assert driver.process.poll() is None, driver.text()
        return state.exists() and int(state.read_text()) >= ticks

    wait_until(reached, seconds, f"{ticks} ticks of {cell}:\n{driver.text()}")


def requeue_slowly(rig: Rig, cluster: str, job: str) -> Path:
    """Requeue a job; it is COMPLETING until the file that is returned is deleted."""
    hold = rig.folder / f"hold-{job}"
    hold.touch()
    rig.ask("scontrol", "-M", cluster, "requeue", job)
    wait_until(lambda: queued(rig, cluster, job) == "COMPLETING", 30, f"{job} is completing")
    return hold


def queued(rig: Rig, cluster: str, job: str) -> str:
    """squeue's word for a job."""
    return rig.ask("squeue", "-M", cluster, "-h", "-t", "all", "-j", job, "-o", "%T").splitlines()[-1]


def result(folder: Path, cell: str) -> str:
    return (folder / f"results/{cell}.txt").read_text()


def assert_each_tick_once(folder: Path, cell: str, ticks: int) -> list[str]:
    """Nothing lost, nothing done twice; returns the jobs that did it, in order."""
    done = journal(folder, cell)
    assert [tick for tick, _ in done] == list(range(1, ticks + 1))
    return list(dict.fromkeys(job for _, job in done))


# ------------------------------------------------------------------ long ones first


@listed
def time_limit_that_needs_two_retries(rig: Rig, folder: Path) -> None:
    """SIGTERM before each limit saves the state; the third attempt ends with the right result."""
    # On a busy machine a warned job takes more than ten seconds to end, its state long saved.
    study = case(folder, [V100], changes={"expanse": {"stop_warning_s": 20}}, ticks=150, minutes=1)
    driver = start(rig, study)
    assert driver.wait(900) == 0, driver.text()
    jobs = assert_each_tick_once(study, V100, 150)
    seen = states(rig, study, "expanse")
    assert [entry["TimelimitRaw"] for entry in seen] == ["1", "2", "4"]
    # On a busy machine the first may be warned before it has done anything.
    assert len(jobs) >= 2
    assert jobs == [entry["JobIDRaw"] for entry in seen][-len(jobs) :]
    assert result(study, V100).startswith(f"150 ticks, last by {jobs[-1]}")
    # Warned, they ended by themselves: nobody had to be killed.
    assert [entry["State"] for entry in seen] == ["FAILED", "FAILED", "COMPLETED"]
    assert driver.text().count("SIGTERM: saved after") >= len(jobs) - 1


@listed
def preemption(rig: Rig, folder: Path) -> None:
    """A preempted job goes back into the queue and on from its state; the run waits for it."""
    changes = {"jetstream2": {"partition": "gpu-preempt", "cpus": 24}}
    study = case(folder, [A100], ticks=25, changes=changes)
    driver = start(rig, study)
    wait_for_ticks(study, A100, 3, driver)
    rig.ask("sbatch", "-M", "jetstream2", "-p", "gpu", "-c", "24", "-t", "1", "-A", "abc123",
            "--output=/dev/null", "--wrap=sleep 5")  # fmt: skip
    assert driver.wait(600) == 0, driver.text()
    jobs = assert_each_tick_once(study, A100, 25)
    assert len(jobs) == 1  # requeued under its own number
    assert [entry["State"] for entry in states(rig, study, "jetstream2")] == ["COMPLETED"]
    record = rig.ask(
        "sacct", "-M", "jetstream2", "-X", "-P", "-n", "-D", "-j", jobs[0], "-o", "State"
    ).split()
    assert record[0] in ("PREEMPTED", "REQUEUED")
    assert record[-1] == "COMPLETED"


@listed
def real_cells_on_three_clusters_then_a_crash(rig: Rig, folder: Path) -> None:
    """One command trains a real cell at each site; then stampede3's controller is restarted, and its node crashes."""
    dispatch(rig, folder / "dispatch")
    controller_restarted(rig, folder / "restart")
    node_crash(rig, folder / "crash")


def dispatch(rig: Rig, folder: Path) -> None:
    # One core each: six trainings side by side on a machine of two.
    changes = {site: {"cpus": 1} for site in SITES}
    study = copy_study(folder, ["Snakefile", "workflow", "config", "profiles", "containers", "src"], changes)
    config = yaml.safe_load((study / "config/config.yaml").read_text())
    config |= {"targets": ["baseline"], "architectures": ["v100", "a100", "h100"], "smoke": False}
    config["workload"] |= {"network": "small_64", "size": 16}
    config["train"] = {"iterations": 2, "device": "cpu"}
    config["data"] = {"phantom": {"volumes": 2, "size": 16, "seed": 0}}
    (study / "config/config.yaml").write_text(yaml.safe_dump(config))
    cells = {"expanse": V100, "jetstream2": A100, "stampede3": H100}
    targets = [f"results/cells/{cell}/train/loss.json" for cell in cells.values()]
    driver = rig.start_command(["snakemake", *targets, *SNAKEMAKE[1:]], study, folder / "output.txt")
    assert driver.wait(900) == 0, driver.text()
    asked = {
        "expanse": ("gpu-shared", "exp-1-57", "gres/gpu=1"),
        "jetstream2": ("gpu", "js2-g01", "gres/gpu:a100=1"),
        "stampede3": ("h100", "c561-001", None),
    }
    losses = []
    for cluster, cell in cells.items():
        [job] = states(rig, study, cluster)
        partition, node, gpu = asked[cluster]
        assert (job["State"], job["Partition"], job["NodeList"], job["Account"]) == (
            "COMPLETED", partition, node, "abc123"
        ), job  # fmt: skip
        assert ("gpu" in job["ReqTRES"]) == (gpu is not None), job
        if gpu:
            assert gpu in job["AllocTRES"], job
        trained = study / "results/cells" / cell / "train"
        loss = json.loads((trained / "loss.json").read_text())
        assert loss["iterations"] == 2
        assert len(loss["loss"]) == 2
        losses.append(loss["loss"])
        assert {path.name for path in trained.iterdir()} >= {"steps.parquet", "sample.nii.gz", "sample.png"}
    assert losses[0] == losses[1] == losses[2]  # one seed, one machine: the site changes nothing


def controller_restarted(rig: Rig, folder: Path) -> None:
    study = case(folder, [H100], ticks=30)
    driver = start(rig, study)
    wait_for_ticks(study, H100, 3, driver)
    rig.shell(f"kill {rig.daemon_pid('stampede3', 'slurmctld')}")
    time.sleep(10)
    rig.shell(f"SLURM_CONF={rig.folder}/stampede3/etc/slurm.conf slurmctld")
    assert driver.wait(300) == 0, driver.text()
    assert len(assert_each_tick_once(study, H100, 30)) == 1
    assert [entry["State"] for entry in states(rig, study, "stampede3")] == ["COMPLETED"]


def node_crash(rig: Rig, folder: Path) -> None:
    study = case(folder, [H100], ticks=20)
    driver = start(rig, study)
    wait_for_ticks(study, H100, 3, driver)
    [job] = states(rig, study, "stampede3")
    # The node dies with all that runs on it.
    rig.shell(crash_script(rig, job["JobIDRaw"]))
    before = journal(study, H100)
    wait_until(lambda: rig.ask("sinfo", "-M", "stampede3", "-h", "-o", "%T").split()[-1].startswith("down"), 120,
               "the node is down")  # fmt: skip
    rig.start_slurmd("stampede3")
    assert driver.wait(600) == 0, driver.text()
    done = journal(study, H100)
    assert done[: len(before)] == before
    assert_each_tick_once(study, H100, 20)
    record = rig.ask(
        "sacct", "-M", "stampede3", "-X", "-P", "-n", "-D", "-j", job["JobIDRaw"], "-o", "State"
    ).split()
    assert record == ["NODE_FAIL", "COMPLETED"], record


def crash_script(rig: Rig, job: str) -> str:
    return f"""
kill -9 {rig.daemon_pid("stampede3", "slurmd")}
for pid in $(pgrep -f 'slurmstepd: \\[{job}\\.'); do kill -9 $(pgrep -P $pid) $pid || true; done
for stat in /proc/[0-9]*; do
    if tr '\\0' '\\n' < $stat/environ 2>/dev/null | grep -qx SLURM_JOB_ID={job}; then kill -9 ${{stat#/proc/}} || true; fi
done
"""


@listed
def site_without_accounting(rig: Rig, folder: Path) -> None:
    """With squeue alone, good, failed and cancelled jobs are told apart, forgotten ones by newer outputs alone."""
    changes = {"jetstream2": {"cluster": "", "status": "squeue"}}
    commands = {"a100/opt1": "bash -c 'exit 7'", "a100/opt2": "python ticks.py 600"}
    study = case(folder, [A100, *commands], changes=changes, commands=commands)
    driver = start_on_virtual(rig, study)
    wait_for_ticks(study, "a100/opt2", 2, driver)
    job = journal(study, "a100/opt2")[0][1]
    rig.ask("scancel", job, cluster="virtual")
    assert driver.wait(300) == 1, driver.text()
    assert result(study, A100).startswith("3 ticks")
    assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in driver.text()
    assert driver.text().count("SLURM status is: 'FAILED'") == 3  # opt1 and its two retries
    assert not (study / "results/a100/opt1.txt").exists()
    down_then_forgetful(rig, study)


def start_on_virtual(rig: Rig, study: Path, *arguments: str, name: str = "output") -> Driver:
    command = ["snakemake", *arguments, "--profile", "profiles/slurm", "--config", "site=jetstream2"]
    return rig.start_command(
        command, study, study / f"{name}.txt", {"GPUATLAS_ACCOUNT": ""}, cluster="virtual"
    )


def down_then_forgetful(rig: Rig, study: Path) -> None:
    """A cell is done again while the controller is down, which costs no attempt.

    Then its job is cancelled before it starts, and squeue forgets it at once.
    """
    configuration = rig.folder / "virtual/etc/slurm.conf"
    text = configuration.read_text()
    rig.ask("scontrol", "update", "nodename=vc-g01", "state=drain", "reason=x", cluster="virtual")
    rig.shell(f"kill {rig.daemon_pid('virtual', 'slurmctld')}")
    configuration.write_text(text.replace("MinJobAge=300", "MinJobAge=2"))
    driver = start_on_virtual(rig, study, f"results/{A100}.txt", "--forcerun", "train_cell", name="again")
    try:
        wait_until(lambda: "is not submitted yet: Slurm does not answer" in driver.text(), 120, "it says so")
    finally:
        rig.shell(f"SLURM_CONF={configuration} slurmctld")
    sent = re.compile(r"submitted with SLURM jobid (\d+)")
    wait_until(lambda: sent.search(driver.text()) is not None, 120, "the job is sent")
    assert "Trying to restart" not in driver.text()
    first = sent.findall(driver.text())[0]
    # A driver that asks in the moment before it is forgotten would see it cancelled.
    driver.signal(signal.SIGSTOP)
    rig.ask("scancel", first, cluster="virtual")
    known = ["squeue", "--noheader", "--states=all", "--format=%i"]
    wait_until(lambda: first not in rig.ask(*known, cluster="virtual").split(), 150, "squeue forgets it")
    driver.process.send_signal(signal.SIGCONT)  # nsenter, which stopped with its child and wakes it
    wait_until(lambda: f"SLURM-job '{first}' failed" in driver.text(), 200, "the job is seen as lost")
    configuration.write_text(text)
    rig.ask("scontrol", "reconfigure", cluster="virtual")
    rig.ask("scontrol", "update", "nodename=vc-g01", "state=resume", cluster="virtual")
    assert driver.wait(200) == 0, driver.text()
    assert result(study, A100).startswith(f"3 ticks, last by {sent.findall(driver.text())[1]}")


@listed
def equal_numbers_on_two_clusters(rig: Rig, folder: Path) -> None:
    """The second job of a number is refused and done under another; Ctrl-C spares a stranger's job of that number.

    And where one of the two does not answer, the other's jobs go on.
    """
    changes = {"expanse": {"cluster": "east", "gpu_request": "none", "partition": "gpu"},
               "jetstream2": {"cluster": "west", "partition": "gpu"}}  # fmt: skip
    study = case(folder / "refused", [V100, A100], ticks=20, changes=changes)
    driver = start(rig, study)
    assert driver.wait(300) == 0, driver.text()
    assert re.search(r"SLURM jobid 5000001 is in use on (east|west) as well as on (east|west)", driver.text())
    east, west = states(rig, study, "east"), states(rig, study, "west")
    ids = [job["JobIDRaw"] for job in east + west if job["State"] == "COMPLETED"]
    assert len(ids) == len(set(ids)) == 2
    [refused] = [job for job in east + west if job["State"] != "COMPLETED"]
    assert refused["State"].startswith("CANCELLED")
    for cell in (V100, A100):
        assert_each_tick_once(study, cell, 20)
    spared(rig, folder / "spared", changes)
    one_does_not_answer(rig, folder / "silent")


def spared(rig: Rig, folder: Path, changes: dict[str, dict[str, str]]) -> None:
    def submit(cluster: str) -> int:
        asked = ["-t", "10", "-A", "abc123", "--output=/dev/null", "--mem=10", "--wrap=sleep 300"]
        return int(rig.ask("sbatch", "-M", cluster, "--parsable", *asked).split(";")[0])

    next_number = {cluster: submit(cluster) + 1 for cluster in ("east", "west")}
    behind = min(next_number, key=lambda cluster: next_number[cluster])
    while next_number[behind] < max(next_number.values()):
        next_number[behind] = submit(behind) + 1
    study = case(folder, [A100], ticks=600, changes=changes)
    driver = start(rig, study)
    wait_for_ticks(study, A100, 2, driver)
    [ours] = [job["JobIDRaw"] for job in states(rig, study, "west")]
    stranger = str(submit("east"))
    assert stranger == ours
    driver.signal(signal.SIGINT)
    driver.wait(120)
    assert [job["State"].split()[0] for job in states(rig, study, "west")] == ["CANCELLED"]
    assert rig.ask("squeue", "-M", "east", "-h", "-j", stranger, "-o", "%T").splitlines()[-1] in (
        "RUNNING",
        "PENDING",
    )
    rig.ask("scancel", "-M", "east,west", "-u", "root")


def one_does_not_answer(rig: Rig, folder: Path) -> None:
    """A cluster whose controller is down holds up no job of another."""
    changes = {"jetstream2": {"cluster": "west", "partition": "gpu", "status": "squeue"}}
    commands = {V100: "python ticks.py 5"}
    study = case(folder, [V100, A100], ticks=60, second=[V100], commands=commands, changes=changes)
    driver = start(rig, study)
    wait_for_ticks(study, A100, 2, driver)
    rig.shell(f"kill {rig.daemon_pid('west', 'slurmctld')}")
    try:
        wait_until((study / f"results/{V100}.second").exists, 150, "the other cluster's jobs are done")
    finally:
        rig.shell(f"SLURM_CONF={rig.folder}/west/etc/slurm.conf slurmctld")
    assert driver.wait(300) == 0, driver.text()
    assert len(assert_each_tick_once(study, A100, 60)) == 1


@listed
def failure_and_growth(rig: Rig, folder: Path) -> None:
    """A failing command: its cause and log are shown; each retry is a job of its own with twice the time."""
    command = "bash -c 'echo the disk is full >&2; exit 7'"
    study = case(folder, [V100, H100], commands={V100: command}, minutes=5)
    driver = start(rig, study)
    assert driver.wait(400) == 1, driver.text()
    seen = states(rig, study, "expanse")
    assert [entry["State"] for entry in seen] == ["FAILED"] * 3
    assert [entry["TimelimitRaw"] for entry in seen] == ["5", "10", "20"]
    assert "the disk is full" in driver.text()
    assert f"logs/{V100}.log" in driver.text()
    assert f"SLURM-job '{seen[-1]['JobIDRaw']}' failed, SLURM status is: 'FAILED'" in driver.text()
    assert not (study / f"results/{V100}.txt").exists()
    assert result(study, H100).startswith("3 ticks")  # the other cell is done all the same


@listed
def driver_killed_and_run_again(rig: Rig, folder: Path) -> None:
    """After kill -9 the same command waits for what is left, also for a requeued job, and keeps what ended."""
    requeued = "a100/opt1"
    study = case(folder, [V100, A100, requeued], ticks=40, commands={A100: "python ticks.py 8"})
    driver = start(rig, study)
    for cell in (V100, A100, requeued):
        wait_for_ticks(study, cell, 2, driver)
    driver.signal(signal.SIGKILL)
    driver.wait(30)
    wait_until((study / f"results/{A100}.txt").exists, 120, "the short job ends without a driver")
    unlock = rig.start_command(["snakemake", "--unlock", *SNAKEMAKE[1:]], study, study / "unlock.txt")
    assert unlock.wait(120) == 0, unlock.text()
    job = journal(study, requeued)[0][1]
    hold = requeue_slowly(rig, "jetstream2", job)
    again = start(rig, study, name="again")
    try:
        wait_until(lambda: f"(SLURM jobid {job}): waiting for it" in again.text(), 120, "it is taken over")
    finally:
        hold.unlink()
    wait_until(lambda: queued(rig, "jetstream2", job) == "PENDING", 60, "it is back in the queue")
    rig.ask("scontrol", "-M", "jetstream2", "update", f"jobid={job}", "starttime=now")
    assert again.wait(300) == 0, again.text()
    assert again.text().count("was left in Slurm by an earlier run") == 2, again.text()
    for cell, ticks in ((V100, 40), (A100, 8), (requeued, 40)):
        assert len(assert_each_tick_once(study, cell, ticks)) == 1
    assert [entry["State"] for entry in states(rig, study, "expanse")] == ["COMPLETED"]
    assert [entry["State"] for entry in states(rig, study, "jetstream2")] == ["COMPLETED"] * 2
    third = start(rig, study, name="third")
    assert third.wait(120) == 0
    assert "Nothing to be done" in third.text()


@listed
def driver_gets_sigterm(rig: Rig, folder: Path) -> None:
    """SIGTERM to the driver: what runs is finished and kept, nothing new starts; the next run does the rest."""
    study = case(folder, [V100], ticks=15, second=[V100])
    driver = start(rig, study)
    wait_for_ticks(study, V100, 2, driver)
    driver.signal(signal.SIGTERM)
    driver.wait(200)
    assert result(study, V100).startswith("15 ticks")
    assert not (study / f"results/{V100}.second").exists()
    again = start(rig, study, name="again")
    assert again.wait(200) == 0, again.text()
    assert len(assert_each_tick_once(study, V100, 15)) == 1
    assert (study / f"results/{V100}.second").read_text() == result(study, V100)


@listed
def training_saves_its_state_on_sigterm(rig: Rig, folder: Path) -> None:
    """The real training: warned in its step, it ends with its state saved; the retry ends as an undisturbed run does."""
    train = (
        "gpuatlas train --targets config/targets.yaml --target baseline --network small_64 --size 16 --data phantoms"
        " --iterations 8 --seed 3 --out train"
    )
    data = "gpuatlas data phantom --out phantoms --volumes 2 --size 16 --seed 0"
    study = case(folder, [V100], command="bash train.sh", changes={"expanse": {"cpus": 1}})
    (study / "train.sh").write_text(
        f"trap : TERM\n{train} --state .state/train || exit $?\necho trained > $1\n"
    )
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": programs, "OMP_NUM_THREADS": "1"}
    subprocess.run(data.split(), cwd=study, env=environment, check=True)
    driver = start(rig, study)
    log = study / f"logs/{V100}.log"
    wait_until(lambda: (study / ".snakemake/slurm_run_name").exists() and log.exists(), 200, "the job starts")
    wait_until(lambda: training(study), 200, "the training runs")
    [job] = states(rig, study, "expanse")
    rig.ask("scancel", "-M", "expanse", "--signal=TERM", job["JobIDRaw"])
    assert driver.wait(900) == 0, driver.text()
    first, second = states(rig, study, "expanse")
    assert (first["State"], second["State"]) == ("FAILED", "COMPLETED")
    reference = folder / "reference"
    reference.mkdir()
    undisturbed = train.replace("--out train", f"--out {reference}/train") + f" --state {reference}/state"
    subprocess.run(undisturbed.split(), cwd=study, env=environment, check=True)
    kept, expected = (
        json.loads((path / "train/loss.json").read_text())["loss"] for path in (study, reference)
    )
    assert kept == expected


def training(study: Path) -> bool:
    """Whether a training process of this study is past its imports: it has opened its state."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            if b"train\0--targets" in line and (entry / "cwd").resolve() == study.resolve():
                status = (entry / "status").read_text()
                caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)  # type: ignore[index]
                if caught >> (signal.SIGTERM - 1) & 1 and b"launch" not in line:
                    return True
        except OSError:
            continue
    return False


@listed
def cancelled_from_outside(rig: Rig, folder: Path) -> None:
    """The run ends, says so, and does not submit again what somebody cancelled, also while it was requeued."""
    requeued = "v100/opt1"
    study = case(folder, [V100, requeued], ticks=600)
    driver = start(rig, study)
    jobs = []
    for cell in (V100, requeued):
        wait_for_ticks(study, cell, 2, driver)
        jobs.append(journal(study, cell)[0][1])
    hold = requeue_slowly(rig, "expanse", jobs[1])
    rig.ask("scancel", "-M", "expanse", *jobs)
    hold.unlink()
    assert driver.wait(200) == 1, driver.text()
    for job in jobs:
        assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in driver.text()
    recorded = {entry["JobIDRaw"]: entry["State"] for entry in states(rig, study, "expanse")}
    assert sorted(recorded) == sorted(jobs)
    assert recorded[jobs[0]].startswith("CANCELLED by")
    assert recorded[jobs[1]] == "REQUEUED"  # sacct does not know that it ended


@listed
def interrupted(rig: Rig, folder: Path) -> None:
    """Ctrl-C cancels this run's jobs on both clusters, and no other job of the user with the same number."""
    changes = {"expanse": {"cluster": "expanse"}, "jetstream2": {"cluster": "jetstream2"}}
    study = case(folder, [V100, A100], ticks=600, changes=changes)
    driver = start(rig, study)
    wait_for_ticks(study, V100, 2, driver)
    wait_for_ticks(study, A100, 2, driver)
    driver.signal(signal.SIGINT)
    assert driver.wait(120) == 1, driver.text()
    for cluster in ("expanse", "jetstream2"):
        [job] = states(rig, study, cluster)
        assert job["State"].startswith("CANCELLED"), job
    # What was done is kept: the next run goes on.
    assert len(journal(study, V100)) >= 2


@listed
def driver_inside_a_job(rig: Rig, folder: Path) -> None:
    """The driver runs in an sbatch job and dispatches from there."""
    study = case(folder, [V100])
    script = f"#!/bin/bash\ncd {study} && {' '.join(SNAKEMAKE)} &> output.txt; echo $? > status.txt\n"
    (study / "driver.sh").write_text(script)
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "USER": "root"}
    submit = ["sbatch", "-M", "expanse", "-p", "gpu-shared", "-A", "abc123", "-t", "10", "--mem=2000", "-c", "2",
              "--output=slurm.txt", "driver.sh"]  # fmt: skip
    asked = rig.start_command(submit, study, study / "submit.txt", environment)
    assert asked.wait(60) == 0, asked.text()
    wait_until((study / "status.txt").exists, 240, "the driver ends")
    assert (study / "status.txt").read_text() == "0\n", (study / "output.txt").read_text()
    assert result(study, V100).startswith("3 ticks")
    assert [job["State"] for job in states(rig, study, "expanse")] == ["COMPLETED"]


@listed
def driver_in_tmux(rig: Rig, folder: Path) -> None:
    """The driver runs in a tmux session; the terminal that started it is gone, and the run ends all the same."""
    study = case(folder, [V100], ticks=20)
    tmux = ["tmux", "-S", str(study / "tmux")]
    run = f"{shlex.join(SNAKEMAKE)} &> output.txt; echo $? > status.txt"
    session = [*tmux, "new-session", "-s", "atlas", f"bash -c {shlex.quote(run)}"]
    # `script` is the terminal.
    terminal = rig.start_command(
        ["script", "--quiet", "--command", shlex.join(session), "/dev/null"], study, study / "terminal.txt",
        {"TERM": "xterm", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    wait_for_ticks(study, V100, 2, terminal)
    assert rig.ask(*tmux, "list-clients") != ""
    terminal.stop()
    wait_until(lambda: rig.ask(*tmux, "list-clients") == "", 20, "tmux has lost its terminal")
    assert not (study / "status.txt").exists()
    wait_until((study / "status.txt").exists, 200, "the driver ends")
    assert (study / "status.txt").read_text() == "0\n", (study / "output.txt").read_text()
    assert len(assert_each_tick_once(study, V100, 20)) == 1
    assert [job["State"] for job in states(rig, study, "expanse")] == ["COMPLETED"]


@listed
def wrong_account_and_partition(rig: Rig, folder: Path) -> None:
    """Slurm's own words are shown, and no job runs."""
    study = case(folder / "account", [V100])
    driver = start(rig, study, GPUATLAS_ACCOUNT="nobody")
    assert driver.wait(200) == 1, driver.text()
    assert re.search(r"The given account nobody appears to be invalid", driver.text())
    assert states(rig, study, "expanse") == []
    study = case(folder / "partition", [V100], changes={"expanse": {"partition": "gpu-none"}})
    driver = start(rig, study)
    assert driver.wait(200) == 1, driver.text()
    assert "invalid partition specified: gpu-none" in driver.text()
    assert states(rig, study, "expanse") == []
