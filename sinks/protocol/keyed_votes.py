"""What a task reports after phase 2b, in which functions work on keyed state.

The functions get the events that phase one staged and voted for. So their input is the
same at every try, even if a transform would answer differently another time. Only rows
of attempts that vote here are published.

Invariants, over the votes of one batch::

    events consumed == events staged           per stateful output
    an attempt votes once, in one phase
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.measures import (
    NOTHING_MEASURED,
    Measures,
    cpu_of_tasks,
    sum_measures,
)
from tallyweir.sinks.protocol.samples import NOTHING_SAMPLED, Samples, join_samples
from tallyweir.sinks.protocol.votes import BatchTally, OutputTally


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedVote:
    """One task attempt's statement of the keys that it worked on.

    Attributes:
        attempt: The attempt that votes.
        consumed: Number of staged events that functions were given, by staging table.
            Every stateful output is listed, with 0 if it had no events.
        staged: Number of rows that this attempt copied, by staging table: results,
            changes of state and changes of timers.
        rows: Number of result rows, by output.
        measures: What this attempt has cost.
        samples: Those of its result rows that people may look at.
    """

    attempt: Attempt
    consumed: Mapping[str, int]
    staged: Mapping[str, int]
    rows: Mapping[str, int]
    measures: Measures = NOTHING_MEASURED
    samples: Samples = NOTHING_SAMPLED


def tally_keyed_votes(
    tally: BatchTally, votes: Sequence[KeyedVote], *, watermark_us: int | None
) -> BatchTally:
    """Add the votes of phase 2b to what phase one voted for.

    Raises:
        RetryableError: ``STAGED_ROWS_MISSING``: staged events were gone, as after a
            crash of the server, or were not the ones that were voted for.
        FatalError: ``CONSERVATION_BROKEN``: an attempt voted twice.
    """
    attempts = (*tally.attempts, *sorted(vote.attempt for vote in votes))
    if len(set(attempts)) != len(attempts):
        raise FatalError(
            "CONSERVATION_BROKEN",
            saw=f"Attempts {attempts} voted more than once.",
            why="An event is unaccounted for; nothing of this batch was published.",
            fix="Restart the driver, and report this if it happens again.",
        )
    staged = dict(tally.staged)
    outputs = dict(tally.outputs)
    consumed: dict[str, int] = {}
    for vote in votes:
        _add(consumed, vote.consumed)
        _add(staged, vote.staged)
        for table, rows in vote.rows.items():
            outputs[table] = outputs.get(table, OutputTally()) + OutputTally(rows=rows)
    for table, events in consumed.items():
        voted = tally.staged.get(table, 0)
        # After a restore, a task of another driver with the same epoch may add rows.
        if events != voted:
            raise RetryableError(
                "STAGED_ROWS_MISSING",
                saw=f"The tasks voted for {voted} rows of {table}; staging holds "
                f"{events}.",
                why="A crash of the server empties the staging tables.",
                fix="Nothing to do: the batch is staged again.",
            )
    return replace(
        tally,
        attempts=attempts,
        staged=staged,
        outputs=outputs,
        fired_through_us=watermark_us,
        measures=tally.measures + _measures_of(votes),
        samples=join_samples((tally.samples, *(vote.samples for vote in votes))),
    )


def _measures_of(votes: Sequence[KeyedVote]) -> Measures:
    measures = [vote.measures for vote in votes]
    return sum_measures([*measures, cpu_of_tasks(measures)])


def _add(sums: dict[str, int], numbers: Mapping[str, int]) -> None:
    for name, number in numbers.items():
        sums[name] = sums.get(name, 0) + number
