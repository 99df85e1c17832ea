"""Checks that the settings of a pipeline fit its guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallyweir.schemas.pipeline.checks.databases import HOME
from tallyweir.schemas.pipeline.checks.problems import Problem
from tallyweir.schemas.pipeline.events.deduplicate import Deduplicate
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.sinks.protocol.guarantee import Guarantee

_FIX = "Write guarantee: exactly_once, which is also the default."


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
            why="The guarantee defines how a crash may affect the results.",
            fix="Use one of the members of Guarantee.",
        )
    if guarantee is not Guarantee.AT_LEAST_ONCE:
        return
    if deduplicate is not None:
        yield _problem(
            ("deduplicate",),
            "The pipeline has guarantee at_least_once and drops repeats.",
            (
                "The pipeline remembers no IDs, so an event that a producer sends "
                "twice, or that a crash repeats, is written twice."
            ),
            "Write deduplicate: off (in Python, deduplicate=None), or guarantee: "
            "exactly_once.",
        )
    for index, output in enumerate(outputs):
        at = ("outputs", index)
        if output.unrepeatable is not None:
            what, why = output.unrepeatable
            saw = f"The pipeline has guarantee at_least_once, and the output {what}."
            yield _problem(at, saw, why, _FIX)
        elif output.databases != (HOME,) or output.transactions > 1:
            yield _problem(
                at,
                (
                    "The pipeline has guarantee at_least_once, and the output is in "
                    "another database or in branches."
                ),
                (
                    "Tasks already copy in parallel, and only the database that "
                    "stores the offsets is certain to hold the rows that they copied."
                ),
                f"Leave out database, shard_by and branches. {_FIX}",
            )


def _problem(at: tuple[str | int, ...], saw: str, why: str, fix: str) -> Problem:
    return Problem(code="PIPELINE_GUARANTEE", at=at, saw=saw, why=why, fix=fix)
