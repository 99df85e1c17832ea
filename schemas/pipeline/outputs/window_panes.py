"""Settings for when a window's rows are shown, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.problems import Problem
from tallyweir.schemas.pipeline.outputs.window_kinds import Session, WindowKind


class Early(StrEnum):
    """Whether a window gets a row before the watermark passes its end."""

    OFF = "off"
    BATCH = "batch"


#: A duration is the longest time, apart from batches, that events wait to be shown.
EarlyPanes: TypeAlias = Early | timedelta


class Panes(StrEnum):
    """The content of a window's rows.

    ``ACCUMULATING`` keeps one row for each window and group, with all its events.
    ``DISCARDING`` adds a row each time, with the events that no former row has.
    """

    ACCUMULATING = "accumulating"
    DISCARDING = "discarding"


def check_panes(
    windows: WindowKind, early: EarlyPanes, panes: Panes
) -> Iterator[Problem]:
    """Find an interval of zero, and settings that sessions cannot have."""
    if isinstance(early, timedelta):
        yield from check_duration(early, ("early",), zero=False)
    if not isinstance(windows, Session):
        return
    if isinstance(early, timedelta):
        yield Problem(
            code="PIPELINE_VALUE",
            at=("early",),
            saw="The output has both session and early: every.",
            why="A session that grows or merges replaces its earlier rows, which "
            "would be missing until the new row is shown.",
            fix="Write early: batch, or early: off.",
        )
    if panes is Panes.DISCARDING:
        yield Problem(
            code="PIPELINE_VALUE",
            at=("panes",),
            saw="The output has both session and panes: discarding.",
            why="A session may merge with others whose panes were already shown, and "
            "a reader could not tell which panes belong to it.",
            fix="Remove panes, or use fixed or sliding windows.",
        )
