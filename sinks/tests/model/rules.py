"""What the model runs: production's decisions and steps, each of them replaceable.

A mutant is a ``Rules`` with one entry replaced. ``installed`` binds the entries into
the modules that use them, so that the production code of drivers and resolver runs with
them; the source stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tallyweir.sinks.protocol import coordinator, publisher, resolution
from tallyweir.sinks.protocol.coordinator import Coordinator
from tallyweir.sinks.protocol.decisions import check_epoch, decide_publish
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import (
    EpochClaim,
    check_decided_is_committed,
    compare_history,
    decide_in_doubt,
)
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.recovery import decide_start
from tallyweir.sinks.protocol.resolution import commit_decided, resolve
from tallyweir.sinks.protocol.votes import tally_votes
from tallyweir.sinks.tests.model.states import Staged

Anything = Callable[..., Any]


def claim_of(epoch: int, number: int) -> EpochClaim:
    """Name a claim as production does; the nonce is its number in the model."""
    return EpochClaim(
        installation="0" * 12,
        pipeline_number=1,
        epoch=Epoch(epoch),
        nonce=f"{number:08x}",
    )


def voted_rows(staged: list[Staged], attempts: tuple[int, ...]) -> list[Staged]:
    """Choose the staged rows to move: those of attempts that voted."""
    return [row for row in staged if row.attempt in attempts]


def next_epoch(epochs: list[int]) -> int:
    """Choose the epoch to claim."""
    return max(epochs, default=0) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The decisions and steps; the defaults are production's."""

    # Bound into the modules of the protocol.
    decide_in_doubt: Anything = decide_in_doubt
    check_decided_is_committed: Anything = check_decided_is_committed
    compare_history: Anything = compare_history
    tally_votes: Anything = tally_votes
    commit_decided: Anything = commit_decided
    resolve: Anything = resolve
    # Called by the model where the adapters call them.
    decide_publish: Anything = decide_publish
    check_epoch: Anything = check_epoch
    decide_start: Anything = decide_start
    publisher: type[Publisher] = Publisher
    coordinator: type[Coordinator] = Coordinator
    # Steps of the adapters and of the servers, as functions.
    claim_of: Callable[[int, int], EpochClaim] = claim_of
    voted_rows: Callable[[list[Staged], tuple[int, ...]], list[Staged]] = voted_rows
    next_epoch: Callable[[list[int]], int] = next_epoch
    #: Whether the adapters take the lock of the pipeline's row.
    publishing_locks: bool = True
    reading_locks: bool = True
    claiming_locks: bool = True
    #: Whether publishing compares the number of rows moved with the votes.
    counts_moved: bool = True
    #: Whether a branch's transaction compares its database's history with home's.
    branch_compares: bool = True
    #: Whether the marker is written inside the prepared transaction.
    marks: bool = True
    #: Whether two branches of one batch exclude each other in a database.
    markers_are_keyed: bool = True
    #: Whether PREPARE's command tag is checked.
    checks_tag: bool = True
    #: Whether the list of branches is written with the decision.
    lists_branches: bool = True
    #: Whether the offsets advance in the transaction of the results.
    advances: bool = True
    #: Whether a timer that fires is forgotten in the transaction of its rows.
    forgets_fired: bool = True
    #: Whether a new driver makes its staging tables anew.
    clears_staging: bool = True
    #: Whether a driver starts over when a batch fails that another was staged behind.
    starts_over: bool = True
    #: Whether a driver that starts over asks first whether it was superseded.
    checks_before_claim: bool = True


@contextmanager
def installed(rules: Rules) -> Iterator[None]:
    """Bind the rules into the modules of the protocol."""
    places = (
        (resolution, "decide_in_doubt", rules.decide_in_doubt),
        (resolution, "check_decided_is_committed", rules.check_decided_is_committed),
        (resolution, "commit_decided", rules.commit_decided),
        (publisher, "commit_decided", rules.commit_decided),
        (publisher, "compare_history", rules.compare_history),
        (publisher, "resolve", rules.resolve),
        (coordinator, "tally_votes", rules.tally_votes),
    )
    former = [(module, name, getattr(module, name)) for module, name, _ in places]
    for module, name, function in places:
        setattr(module, name, function)
    try:
        yield
    finally:
        for module, name, function in former:
            setattr(module, name, function)
