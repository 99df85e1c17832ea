"""Rules that events must meet, and the share of dead letters that pauses a pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tallyweir.schemas.pipeline.checks.names import check_reason_code
from tallyweir.schemas.pipeline.checks.problems import Problem, raise_if_any
from tallyweir.schemas.pipeline.document.file_keys import Keys, Share, WholeNumber
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


#: Few enough to be read within a minute, and too many to be dead by chance.
DEAD_LETTER_LIMIT_RECORDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterLimit:
    """Pause the pipeline when too many of its records become dead letters.

    Attributes:
        share: Share of the newest records that may be dead letters; 0 to allow none.
        records: Least number of records to judge by, read since the driver's start or
            since the last pause.
    """

    share: float
    records: int = DEAD_LETTER_LIMIT_RECORDS

    def __post_init__(self) -> None:
        raise_if_any("DeadLetterLimit", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        if math.isnan(self.share) or not 0 <= self.share < 1:
            yield Problem(
                code="PIPELINE_LIMIT",
                at=("share",),
                saw=f"The share is {self.share:g}.",
                why=(
                    "The share is the fraction of records that may become dead letters."
                ),
                fix="Write a share such as 0.05, which is one in twenty.",
            )
        if self.records < 1:
            yield Problem(
                code="PIPELINE_LIMIT",
                at=("records",),
                saw=f"The limit considers {self.records} records.",
                why="A share needs at least one record.",
                fix=f"Leave it out, or write a number such as "
                f"{DEAD_LETTER_LIMIT_RECORDS}.",
            )


class DeadLetterLimitKeys(Keys[DeadLetterLimit]):
    """The keys of ``dead_letter_limit``."""

    part = DeadLetterLimit
    stand_ins: ClassVar[Mapping[str, object]] = {"share": 0.0}

    share: Share
    records: WholeNumber = DEAD_LETTER_LIMIT_RECORDS
