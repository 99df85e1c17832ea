"""Checks that the settings of a pipeline fit its guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sinks.protocol.guarantee import Guarantee
from spark_jobs.pipeline.append import AppendOutput
from spark_jobs.pipeline.databases import HOME
from spark_jobs.pipeline.deduplicate import Deduplicate
from spark_jobs.pipeline.join import JoinOutput
from spark_jobs.pipeline.outbox import OutboxOutput
from spark_jobs.pipeline.problems import Problem
from spark_jobs.pipeline.stateful import StatefulOutput
from spark_jobs.pipeline.window import WindowOutput

_Output = AppendOutput | WindowOutput | OutboxOutput | StatefulOutput | JoinOutput

_FIX = "Write guarantee: exactly_once, or leave it out, which is the same."
_WITHOUT = {
    WindowOutput: (
        "aggregates windows",
        "A batch that runs again would be counted again, and nobody could tell.",
    ),
    OutboxOutput: (
        "sends messages",
        "They leave after the transaction that publishes them, once each.",
    ),
    StatefulOutput: (
        "keeps state for keys",
        "A batch that runs again would change the state again.",
    ),
    JoinOutput: (
        "joins events",
        "A batch that runs again would pair its events again.",
    ),
}


def check_guarantee(
    guarantee: Guarantee,
    deduplicate: Deduplicate | None,
    outputs: Sequence[_Output],
) -> Iterator[Problem]:
    """Yield settings that make no sense, or are not supported, with at least once."""
    if not isinstance(guarantee, Guarantee):
        yield Problem(
            code="PIPELINE_VALUE",
            at=("guarantee",),
            saw=f"guarantee is {guarantee!r}.",
            why="It says what a crash may do to the results.",
            fix="Use one of the members of Guarantee.",
        )
    if guarantee is not Guarantee.AT_LEAST_ONCE:
        return
    if deduplicate is not None:
        yield _problem(
            ("deduplicate",),
            "The pipeline is to write at_least_once, and to drop repeats.",
            "What a producer sends twice is there twice, like what a crash repeats: no "
            "IDs are remembered.",
            "Write deduplicate: off (in Python, deduplicate=None), or guarantee: "
            "exactly_once.",
        )
    for index, output in enumerate(outputs):
        at = ("outputs", index)
        if not isinstance(output, AppendOutput):
            what, why = _WITHOUT[type(output)]
            saw = f"The pipeline is to write at_least_once, and the output {what}."
            yield _problem(at, saw, why, _FIX)
        elif output.databases != (HOME,) or output.branches > 1:
            yield _problem(
                at,
                "The pipeline is to write at_least_once, and the output is in another "
                "database or in branches.",
                "Tasks copy in parallel already, and what they copied is only sure to "
                "be there in the database that has the offsets.",
                f"Leave out database, shard_by and branches. {_FIX}",
            )


def _problem(at: tuple[str | int, ...], saw: str, why: str, fix: str) -> Problem:
    return Problem(code="PIPELINE_GUARANTEE", at=at, saw=saw, why=why, fix=fix)
