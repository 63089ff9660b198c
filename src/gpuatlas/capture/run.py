"""A capture from the timeline to the report: plan, run what is missing part by part, write the result."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuatlas import console
from gpuatlas.capture import ncu
from gpuatlas.capture.cost import CostModel, estimate, shown
from gpuatlas.capture.join import read_measured, require_matched, require_order, require_second
from gpuatlas.capture.plan import Part, Plan, plan_first
from gpuatlas.capture.probe import Probed, find_ncu
from gpuatlas.capture.program import command
from gpuatlas.capture.represent import places
from gpuatlas.capture.result import SCHEMA, Request, finish
from gpuatlas.capture.second import plan_step
from gpuatlas.capture.state import Record, State, open_state
from gpuatlas.capture.timeline import Timeline, read_timeline
from gpuatlas.errors import GpuatlasError, OtherLaunches
from gpuatlas.ncurep.slim import slim
from gpuatlas.workload.targets import load_target


@dataclass(frozen=True)
class Session:
    """What the parts of a running capture share."""

    request: Request
    timeline: Timeline
    tool: str
    state: State
    first: CostModel
    stop: ncu.Stop

    def cost(self) -> CostModel:
        """Return the first estimate, corrected by what the finished parts took."""
        records = self.state.records
        if not records:
            return self.first
        return replace(
            self.first,
            passes=self.state.passes or self.first.passes,
            scale=sum(one.profile_s for one in records) / sum(one.modelled_s for one in records),
            startup_s=sum(one.startup_s for one in records) / len(records),
        )

    def plan(self) -> Plan:
        """Return the parts that are still to run."""
        budget = self.request.budget_s
        left = None if budget is None else budget - self.state.spent_s
        if self.request.mode.first is not None:
            return plan_first(
                self.timeline, self.request.mode.first, self.cost(), budget_s=left, done=self.state.launches
            )
        if self.state.everything:
            return Plan((), frozenset(), self.cost())
        second = self.state.given_up is None
        return plan_step(self.timeline, self.cost(), budget_s=left, done=self.state.functions, second=second)


def first_estimate(
    timeline: Timeline, settings: ncu.Settings, *, compiled: bool, probed: Probed
) -> CostModel:
    """Return the model of a capture's cost before its first part."""
    model = estimate(
        settings.sections,
        settings.metrics,
        step_ns=timeline.gpu_time_ns,
        compiled=compiled,
        passes=probed.passes,
        probe_s=probed.startup_s,
    )
    return replace(model, scale=probed.scale)


def capture(request: Request, probed: Probed, stop: ncu.Stop) -> dict[str, Any]:
    """Run what is missing of a capture and write its report, plan and environment record.

    Parameters
    ----------
    probed
        What `probe` found on this machine.
    stop
        Asked between parts and while one runs.

    Returns
    -------
    dict
        What was written as plan.json.

    Raises
    ------
    Interrupted
        A stop was requested; finished parts are kept.
    MachineRefused, GpuatlasError, InputRefused
        As `ncu.run`, `read_measured`, `require_backward`, `require_matched` and `require_order`; nothing is
        written to `out`.
    """
    job = request.job
    timeline = read_timeline(request.timeline, job.target, network=job.network, size=job.size)
    target = load_target(Path(job.targets), job.target)
    tool = find_ncu()
    state, discarded = open_state(request.state, _identity(request, timeline, ncu.version(tool)))
    if discarded:
        console.note("Earlier parts were measured otherwise; starting again.")
    first = first_estimate(timeline, request.settings, compiled=target.compile != "none", probed=probed)
    session = Session(request, timeline, tool, state, first, stop)
    plan = session.plan()
    if state.predicted_s is None and not state.records and plan.parts:
        state.predict(plan.seconds, probed.startup_s)
    _announce(plan, state)
    with console.progress() as progress:
        task = progress.add_task("profiling", total=plan.launches + state.launches, completed=state.launches)
        while plan.parts:
            stop.check()
            began = time.monotonic()
            try:
                _measure(session, plan.parts[0], lambda: progress.advance(task))
            except OtherLaunches as error:
                if plan.parts[0].again is None:
                    raise
                reason = str(error).partition("; see ")[0]
                state.give_up_second(reason, time.monotonic() - began)
                console.note(f"Measuring the part again, without second measurements: {reason}")
            plan = session.plan()
            progress.update(task, total=plan.launches + state.launches, completed=state.launches)
    return finish(request, timeline, state, plan)


def _announce(plan: Plan, state: State) -> None:
    """Say what will be done and how long it will take."""
    kept = f" ({len(state.records)} finished before)" if state.records else ""
    console.note(
        f"{plan.launches} launches to measure, {plan.cost.passes} passes each: about {shown(plan.seconds)} "
        f"in {len(plan.parts)} parts{kept}"
    )


def _identity(request: Request, timeline: Timeline, version: str | None) -> dict[str, Any]:
    job, settings = request.job, request.settings
    return {
        "schema": SCHEMA,
        "target": job.target,
        "network": job.network,
        "size": job.size,
        "seed": job.seed,
        "step": timeline.fingerprint(),
        "mode": request.mode.text,
        "sections": list(settings.sections),
        "metrics": list(settings.metrics),
        "replay": settings.replay,
        "cache": settings.cache,
        "clock": settings.clock,
        "ncu": version,
    }


def _measure(session: Session, part: Part, on_launch: Callable[[], object]) -> None:
    """Run one part; its slim report and its record are then in the state folder."""
    request, timeline, state, first = session.request, session.timeline, session.state, session.first
    number, began = len(state.records), time.monotonic()
    # The compiler tunes its kernels once: with a cache of its own, each part would have other grids.
    compiled = {"TORCHINDUCTOR_CACHE_DIR": str((request.state / "compiled").resolve())}
    with tempfile.TemporaryDirectory(prefix="gpuatlas-ncu-", dir=request.scratch) as name:
        folder = Path(name)
        raw = folder / "part.ncu-rep"
        job = folder / "job.json"
        replace(request.job, environment=str(request.state / "environment.json")).write(job)
        outcome = ncu.run(
            [*ncu.arguments(session.tool, request.settings, part, raw), *command(job)],
            log=state.log(number),
            environment={**compiled, **os.environ, "TMPDIR": name},
            stop=session.stop,
            on_launch=on_launch,
        )
        measured = read_measured(raw)
        if len(measured.keys) != outcome.launches:
            raise GpuatlasError(
                f"Nsight Compute says that it profiled {outcome.launches} launches, but its report holds "
                f"{len(measured.keys)}; see {state.log(number)}"
            )
        if part.count is not None:
            require_order(timeline, part.skip or 0, measured.keys)
            if len(measured.keys) < part.count:
                raise GpuatlasError(
                    f"{len(measured.keys)} of {part.count} launches were profiled; see {state.log(number)}"
                )
        second = _second(part, outcome)
        if part.count is None:  # a timeline of other kernels shows in the first part
            others = [one.key for one in timeline.configurations() if not part.asks(one)]
            try:
                require_matched(timeline, measured.keys, others)
            except GpuatlasError as error:
                raise OtherLaunches(str(error)) from error
        if part.again is not None:
            require_second(timeline, measured, part.again, second)
        slim(raw, state.report(number))
    step = places(timeline.keys, timeline.durations_ns)
    known = [step.get(key, np.zeros(1)) for key in measured.keys]
    times = [
        float(own[min(part.again, len(own)) - 1])
        if part.again is not None and place in second
        else own.mean()
        for place, own in enumerate(known)
    ]
    passes = outcome.passes.most_common(1)[0][0] if outcome.passes else first.passes
    unscaled = replace(first, passes=passes, scale=1.0)
    state.add(
        Record(
            functions=part.functions,
            skip=part.skip,
            count=part.count,
            launches=len(measured.keys),
            modelled_s=unscaled.launches_s(times),
            startup_s=time.monotonic() - began - outcome.profile_s,
            profile_s=outcome.profile_s,
            passes={str(count): launches for count, launches in outcome.passes.items()},
            lost=tuple(outcome.lost),
            again=part.again,
            second=second,
        )
    )


def _second(part: Part, outcome: ncu.Outcome) -> tuple[int, ...]:
    """Return which launches of a part are second measurements; refuse others than were asked for."""
    if part.again is None:
        return ()
    if not set(outcome.invocations) <= {1, part.again}:
        raise OtherLaunches("this ncu measured other launches of a configuration than those asked for")
    return tuple(place for place, number in enumerate(outcome.invocations) if number == part.again)
