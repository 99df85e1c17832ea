"""Named moments of the batch protocol at which tests make a driver fail.

Each point is a fact of the protocol, and has two sides: just before it becomes true
and just after. Points are inert in production: reaching a side is one look-up in an
empty dictionary. Code, documents and tests use the names verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum


class FaultPoint(Enum):
    """Facts in the order in which a batch makes them true.

    A batch reaches ``BRANCH_PREPARED`` and ``BRANCH_COMMITTED`` once per branch. If it
    changes only the home database, it reaches neither these two nor ``ALL_PREPARED``
    and ``ALL_COMMITTED``. Only pipelines with keyed state reach the two points about
    keys; a tick begins with them, once it is planned.
    """

    PLANNED = "planned"
    ROWS_STAGED = "rows_staged"
    VOTED = "voted"
    KEYS_STAGED = "keys_staged"
    KEYS_VOTED = "keys_voted"
    BRANCH_PREPARED = "branch_prepared"
    ALL_PREPARED = "all_prepared"
    DECISION_COMMITTED = "decision_committed"
    BRANCH_COMMITTED = "branch_committed"
    ALL_COMMITTED = "all_committed"
    SEALED = "sealed"


class MergePoint(Enum):
    """Facts in the order in which a merge of the seen-ID catalog makes them true.

    A merge reaches ``CHUNKS_WRITTEN`` once per transaction that writes chunks.
    """

    CHUNKS_WRITTEN = "chunks_written"
    RUNS_REPLACED = "runs_replaced"


class RedrivePoint(Enum):
    """Facts in the order in which a redrive of dead letters makes them true."""

    ANNOUNCED = "announced"
    SENT = "sent"


class VersionPoint(Enum):
    """Facts in the order in which an update or a rollback makes them true.

    All but the last are undone with the transaction.
    """

    STATE_MIGRATED = "state_migrated"
    VERSION_ADDED = "version_added"
    VERSION_IN_FORCE = "version_in_force"


class DrainPoint(Enum):
    """Facts in the order in which a driver that drains makes them true.

    The ticks of ``WINDOWS_CLOSED`` are batches, with the points of a batch.
    """

    WINDOWS_CLOSED = "windows_closed"
    DRAINED = "drained"


class ActPoint(Enum):
    """Facts in the order in which an act on a pipeline makes them true.

    All but the last are undone with the transaction. A fork reaches only the last two:
    it claims nothing of the pipeline that it is made from. A discard does not claim
    either: nothing is left to claim.
    """

    CLAIMED = "act_claimed"
    PIPELINE_HELD = "act_pipeline_held"
    NOTED = "act_noted"
    IN_FORCE = "act_in_force"


AnyPoint = FaultPoint | MergePoint | RedrivePoint | VersionPoint | ActPoint | DrainPoint


class Side(Enum):
    """On which side of its fact a fault happens."""

    BEFORE = "before"
    AFTER = "after"


_armed: dict[tuple[AnyPoint, Side], Callable[[], None]] = {}


def arm(
    point: AnyPoint, action: Callable[[], None], *, side: Side = Side.AFTER
) -> None:
    """Run ``action`` whenever that side of ``point`` is reached in this process."""
    _armed[point, side] = action


def disarm_all() -> None:
    """Make every point inert again."""
    _armed.clear()


@contextmanager
def making(point: AnyPoint) -> Iterator[None]:
    """Surround the step that makes ``point`` true; a step that fails has no after."""
    _reach(point, Side.BEFORE)
    yield
    _reach(point, Side.AFTER)


def _reach(point: AnyPoint, side: Side) -> None:
    action = _armed.get((point, side))
    if action is not None:
        action()
