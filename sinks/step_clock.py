"""How long a process spends on each step of its work, and at how much CPU."""

from __future__ import annotations

import time
from typing import Self

from tallyweir.sinks.protocol.measures import Measures, StepMeasure


class Spent:
    """Cost of one step so far; a context that counts its block to the step.

    Attributes:
        seconds: Wall-clock seconds, without those of steps inside of it.
        cpu_seconds: CPU seconds, without those of steps inside of it.
        rows_in: Rows that it was given. The code of the step adds to this and to the
            next two.
        rows_out: Rows that it has passed on.
        bytes: Size of those rows.
    """

    __slots__ = ("_clock", "bytes", "cpu_seconds", "rows_in", "rows_out", "seconds")

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock
        self.seconds = self.cpu_seconds = 0.0
        self.rows_in = self.rows_out = self.bytes = 0

    def __enter__(self) -> Self:
        self._clock.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.leave()


class StepClock:
    """Adds up seconds by step; for one thread at a time.

    A step inside of another stops the other's clock, so each second counts once. The
    clock is read twice for each step that is entered, and never for a row.
    """

    def __init__(self) -> None:
        self._spent: dict[str, Spent] = {}
        self._open: list[Spent] = []
        self._began = self._since = time.perf_counter()
        self._cpu_since = time.thread_time()

    def spent_on(self, step: str) -> Spent:
        """Return a context that counts its block's time to a step."""
        spent = self._spent.get(step)
        if spent is None:
            spent = self._spent[step] = Spent(self)
        return spent

    def enter(self, spent: Spent) -> None:
        """Begin to count to a step, and no longer to the one around it."""
        self._charge()
        self._open.append(spent)

    def leave(self) -> None:
        """Go back to the step around."""
        self._charge()
        self._open.pop()

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each step so far."""
        self._charge()
        return {step: spent.seconds for step, spent in self._spent.items()}

    def measures(self) -> Measures:
        """Return a task's measures; the task ends with this call."""
        return Measures(
            steps={
                step: StepMeasure(
                    seconds=spent.seconds,
                    seconds_max=spent.seconds,
                    cpu_seconds=spent.cpu_seconds,
                    rows_in=spent.rows_in,
                    rows_out=spent.rows_out,
                    bytes=spent.bytes,
                    tasks=1,
                )
                for step, spent in self._spent.items()
            },
            task_seconds=(time.perf_counter() - self._began,),
        )

    def _charge(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        if self._open:
            self._open[-1].seconds += now - self._since
            self._open[-1].cpu_seconds += cpu - self._cpu_since
        self._since, self._cpu_since = now, cpu
