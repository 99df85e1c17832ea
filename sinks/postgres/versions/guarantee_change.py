"""Finds a pipeline that wrote at least once and is now to promise exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tallyweir.sinks.postgres.ledger.audited_pipeline import guarantee_of
from tallyweir.sinks.postgres.versions.version_plan import Finding, PlanVerdict
from tallyweir.sinks.protocol.guarantee import Guarantee


def find_guarantee_raised(
    stored: Mapping[str, Any], definition: Mapping[str, Any]
) -> Iterator[Finding]:
    """Find a change back from at least once; the change to it is allowed.

    Rows of a batch that was cut short, or of a task that outlives its driver, would
    stay in a table that is said to have each event once. The IDs of what was written
    meanwhile are unknown.

    Args:
        stored: The pipeline's definition as it last ran.
        definition: The definition that it is to run now.
    """
    if guarantee_of(stored) is Guarantee.EXACTLY_ONCE or (
        guarantee_of(definition) is Guarantee.AT_LEAST_ONCE
    ):
        return
    yield Finding(
        verdict=PlanVerdict.INCOMPATIBLE,
        code="GUARANTEE_RAISED",
        subject="guarantee",
        saw="The guarantee changes from at_least_once to exactly_once.",
        why="The tables may hold rows twice, and the pipeline does not know the IDs "
        "of the events that it wrote meanwhile.",
        fix="Keep guarantee: at_least_once, or start under another pipeline name "
        "with other tables.",
    )
