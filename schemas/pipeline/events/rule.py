"""Rules that events must meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallyweir.schemas.pipeline.checks.names import check_reason_code
from tallyweir.schemas.pipeline.checks.problems import Problem, raise_if_any
from tallyweir.schemas.pipeline.expressions.expressions import check_condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition that an event must meet; otherwise it is a dead letter.

    Attributes:
        reason_code: Reason code of the dead letter, in UPPER_SNAKE_CASE.
        condition: Spark SQL over the event's fields. Null counts as false.
    """

    reason_code: str
    condition: str

    def __post_init__(self) -> None:
        raise_if_any("Rule", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_reason_code(self.reason_code, ())
        yield from check_condition(self.condition)
