"""Checks that the settings of a pipeline fit its guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallyweir.schemas.pipeline.checks.databases import HOME
from tallyweir.schemas.pipeline.checks.problems import Problem
from tallyweir.schemas.pipeline.events.deduplicate import Deduplicate
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.sinks.protocol.guarantee import Guarantee

_FIX = "Write guarantee: exactly_once, or leave it out, which is the same."


def check_guarantee(
    guarantee: Guarantee,
    deduplicate: Deduplicate | None,
    outputs: Sequence[Output],
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
        if output.unrepeatable is not None:
            what, why = output.unrepeatable
            saw = f"The pipeline is to write at_least_once, and the output {what}."
            yield _problem(at, saw, why, _FIX)
        elif output.databases != (HOME,) or output.transactions > 1:
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
