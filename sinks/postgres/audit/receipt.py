"""The result of an audit: checks with their verdicts, and the ledger's totals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum

from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.guarantee import Guarantee

#: How many violations a check spells out; ``violation_count`` counts all of them.
VIOLATIONS_SHOWN = 20

_HOW_OFTEN = {
    Guarantee.EXACTLY_ONCE: "once",
    Guarantee.AT_LEAST_ONCE: "at least once",
}


class Verdict(Enum):
    """The outcome of a check."""

    OK = "ok"
    FAILED = "failed"
    #: The pipeline has nothing to which the check applies.
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule, compared with the tables.

    Attributes:
        name: Stable identifier, such as ``offset_ranges``.
        checked: How many items of ``unit`` the audit read.
        violations: The first ``VIOLATIONS_SHOWN``, each exact.
        violation_count: The number of all violations.
        note: What the audit could not check, and why; empty if it checked everything.
    """

    name: str
    verdict: Verdict
    checked: int
    unit: str
    violations: tuple[str, ...] = ()
    violation_count: int = 0
    note: str = ""


def judge(
    name: str, *, checked: int, unit: str, violations: Iterable[str], note: str = ""
) -> Check:
    """Make a check of its violations: it is ok if there are none, else failed."""
    found = list(violations)
    return Check(
        name=name,
        verdict=Verdict.FAILED if found else Verdict.OK,
        checked=checked,
        unit=unit,
        violations=tuple(found[:VIOLATIONS_SHOWN]),
        violation_count=len(found),
        note=note,
    )


def not_applicable(name: str, *, unit: str, why: str) -> Check:
    """Make a check that does not apply to the pipeline."""
    return Check(
        name=name, verdict=Verdict.NOT_APPLICABLE, checked=0, unit=unit, note=why
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The ledger added up over all batches, in events."""

    read: int
    committed: int
    duplicate: int
    dead: int
    dead_by_reason: dict[str, int]
    late: int
    expired: int
    filtered: int
    batches: int
    #: Epochs claimed, which is the number of times a driver has started.
    drivers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCoverage:
    """The coverage of one output by an audit, in words.

    Attributes:
        output: Its name in the ledger.
        rows_compared: Rows whose values the audit compared with the ledger.
        looked_at: What it checked; empty if nothing.
        not_looked_at: What it left out; empty if nothing.
    """

    output: str
    kind: str
    rows_compared: int
    looked_at: str
    not_looked_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of auditing a pipeline, in one snapshot of each database."""

    pipeline: str
    checks: tuple[Check, ...]
    totals: Totals
    #: The pipeline's promise now; earlier batches may have promised more.
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    #: The databases that the audit read, the home first.
    databases: tuple[str, ...] = (HOME,)
    #: The coverage of each output.
    outputs: tuple[OutputCoverage, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if c.verdict is Verdict.FAILED)

    @property
    def is_verified(self) -> bool:
        """Tell whether something was committed and every check of it holds.

        A pipeline without batches is not verified, because there was nothing to check.
        """
        return self.totals.batches > 0 and not self.failed

    @property
    def summary(self) -> str:
        if self.failed:
            return f"FAILED: {', '.join(check.name for check in self.failed)}"
        if self.totals.batches == 0:
            return "nothing committed yet"
        how_often = _HOW_OFTEN[self.guarantee]
        return f"verified: every record that was read is accounted for, {how_often}"

    def with_check(self, check: Check) -> Receipt:
        return replace(self, checks=(*self.checks, check))

    def as_json(self) -> dict[str, object]:
        """Return plain values, with the totals at the top level."""
        return {
            "pipeline": self.pipeline,
            "guarantee": self.guarantee.value,
            "verified": self.is_verified,
            "summary": self.summary,
            "databases": list(self.databases),
            **asdict(self.totals),
            "outputs": [asdict(output) for output in self.outputs],
            "checks": [
                {**asdict(check), "verdict": check.verdict.value}
                for check in self.checks
            ],
        }
