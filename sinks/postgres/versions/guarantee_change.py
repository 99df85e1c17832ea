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
        saw="The pipeline has written at_least_once, and is now to write exactly_once.",
        why="Its tables may hold rows twice, and it knows no IDs of what it has "
        "written meanwhile.",
        fix="Put guarantee: at_least_once back, or start again under another pipeline "
        "name with other tables.",
    )
