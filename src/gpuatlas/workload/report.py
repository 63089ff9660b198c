"""Progress of a run of known length: a bar where somebody watches, a line a minute in a log."""

import time
from types import TracebackType

from gpuatlas import console


class StepReporter:
    """Reports finished steps with the time left.

    Parameters
    ----------
    what
        What is running.
    total
        Steps in all.
    """

    INTERVAL_S = 60.0

    def __init__(self, what: str, total: int):
        self.what, self.total = what, total
        self._bar = console.progress()
        self._task = self._bar.add_task(what, total=total)
        self._first: tuple[float, int] | None = None
        self._said = time.monotonic()

    def update(self, done: int) -> None:
        """Report that `done` steps are finished; the first call is the start (or where a run goes on)."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)
        self._bar.update(self._task, completed=done)
        if self._bar.disable and now - self._said >= self.INTERVAL_S and done > self._first[1]:
            each = (now - self._first[0]) / (done - self._first[1])
            left = each * (self.total - done)
            console.note(
                f"{self.what}: step {done}/{self.total}, {each:.2f} s each, {left / 60:.0f} min left"
            )
            self._said = now

    def __enter__(self) -> "StepReporter":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
