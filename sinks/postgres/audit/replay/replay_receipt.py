"""The receipt of a replay: what differs, as a check of ``verify`` and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from tallyweir.sinks.postgres.audit.receipt import Check, judge

#: How many rows of each part and finding are kept to be shown.
ROWS_KEPT = 100


class ReplayVerdict(Enum):
    """The verdict of a replay."""

    VERIFIED = "VERIFIED BY REPLAY"
    #: Nothing that was compared differs, but not everything was compared.
    PARTLY = "PARTLY VERIFIED BY REPLAY"
    DIFFERENT = "DIFFERENT"
    NOTHING = "NOTHING REPLAYED"


class Finding(Enum):
    """How a row of the pipeline compares with the row computed again."""

    #: The replay has the row, the pipeline does not.
    MISSING = "missing"
    #: The pipeline has the row, the replay does not.
    EXTRA = "extra"
    DIFFERENT = "different"
    #: The rows differ, and the ledger cannot decide whether they should.
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    """A row that is not the same on both sides.

    Attributes:
        key: The columns that identify it.
        finding: How the sides differ.
        committed: The pipeline's values where they differ; None if it has no row.
        replayed: The replay's values where they differ; None if it has no row.
        reason: Why the row is undetermined; empty for any other finding.
    """

    key: Mapping[str, str | None]
    finding: Finding
    committed: Mapping[str, str | None] | None
    replayed: Mapping[str, str | None] | None
    reason: str = ""

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {**asdict(self), "finding": self.finding.value}


@dataclass(slots=True, kw_only=True)
class ComparedPart:
    """One kind of rows: of one output, or of the ledger.

    Attributes:
        name: The name shown to people: a table's name, or what is in it.
        committed: How many rows the pipeline has.
        replayed: How many rows the replay has.
        equal: How many rows are the same on both sides.
        taken: How many rows another process has taken from the pipeline's table.
        counts: How many rows are not the same, by finding.
        reasons: Why rows are undetermined, with the number of rows.
        rows: The first rows of each finding.
        not_compared: Why the part was not compared; empty if it was.
        note: What the reader must know about the part.
    """

    name: str
    committed: int = 0
    replayed: int = 0
    equal: int = 0
    taken: int = 0
    counts: dict[Finding, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    rows: list[FoundRow] = field(default_factory=list)
    not_compared: str = ""
    note: str = ""

    def add(self, row: FoundRow) -> None:
        """Count a row that is not the same, and keep it if there is room."""
        finding = row.finding
        self.counts[finding] = self.counts.get(finding, 0) + 1
        if row.reason:
            self.reasons[row.reason] = self.reasons.get(row.reason, 0) + 1
        if self.counts[finding] <= ROWS_KEPT:
            self.rows.append(row)

    @property
    def undetermined(self) -> int:
        return self.counts.get(Finding.UNDETERMINED, 0)

    @property
    def broken(self) -> int:
        """The number of rows that should be the same and are not."""
        return sum(self.counts.values()) - self.undetermined

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "name": self.name,
            "committed": self.committed,
            "replayed": self.replayed,
            "equal": self.equal,
            "taken": self.taken,
            **{one.value: self.counts.get(one, 0) for one in Finding},
            "reasons": dict(self.reasons),
            "rows": [row.as_json() for row in self.rows],
            "not_compared": self.not_compared,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReceipt:
    """The result of a replay of a pipeline.

    Attributes:
        after_sequence: The last batch before the replayed ones; 0 if all were replayed.
        why_after: Why the batches up to it were not replayed; empty if all were.
        through_sequence: The last batch that was replayed.
        batches: How many batches were replayed.
        records: How many records they read.
        seconds: How long it took to compute them.
        parts: The parts that were compared.
        notes: What else the reader must know.
    """

    pipeline: str
    after_sequence: int
    why_after: str
    through_sequence: int
    batches: int
    records: int
    seconds: float
    parts: tuple[ComparedPart, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> ReplayVerdict:
        if any(part.broken for part in self.parts):
            return ReplayVerdict.DIFFERENT
        if self.batches == 0:
            return ReplayVerdict.NOTHING
        is_whole = not self.why_after and not any(
            part.undetermined or part.not_compared for part in self.parts
        )
        return ReplayVerdict.VERIFIED if is_whole else ReplayVerdict.PARTLY

    @property
    def is_verified(self) -> bool:
        """Whether some batch was replayed, and nothing that was compared differs."""
        return self.verdict in {ReplayVerdict.VERIFIED, ReplayVerdict.PARTLY}

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "pipeline": self.pipeline,
            "verdict": self.verdict.value,
            "verified": self.is_verified,
            "after_sequence": self.after_sequence,
            "why_after": self.why_after,
            "through_sequence": self.through_sequence,
            "batches": self.batches,
            "records": self.records,
            "seconds": round(self.seconds, 1),
            "parts": [part.as_json() for part in self.parts],
            "notes": list(self.notes),
        }


_FOUND = ("missing", "extra", "different")
#: How many rows of each part a check spells out.
_SHOWN = 5


def check_replay(receipt: Mapping[str, Any]) -> Check:
    """Turn a receipt into a check of ``verify``."""
    parts = receipt["parts"]
    notes = [receipt["verdict"]]
    if receipt["why_after"]:
        notes.append(
            f"batches up to {receipt['after_sequence']} were not replayed: "
            f"{receipt['why_after']}"
        )
    undetermined = sum(part["undetermined"] for part in parts)
    if undetermined:
        notes.append(f"{undetermined:,} rows are undetermined")
    broken = sum(part[finding] for part in parts for finding in _FOUND)
    violations = list(_violations(parts))
    if not receipt["batches"]:
        violations.append("no batch could be replayed")
    check = judge(
        "replay",
        checked=sum(part["committed"] for part in parts),
        unit="rows",
        violations=violations,
        note="; ".join(notes),
    )
    return replace(check, violation_count=max(broken, len(violations)))


def _violations(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        rows = [row for row in part["rows"] if row["finding"] in _FOUND]
        for row in rows[:_SHOWN]:
            yield f"{part['name']}: {describe_row(row)}"


def describe_row(row: Mapping[str, Any]) -> str:
    """Describe a row in one line, with what the replay has in its place."""
    key = ", ".join(f"{name} {value}" for name, value in row["key"].items())
    committed, replayed = row["committed"], row["replayed"]
    if committed is None:
        what = f"is not there; the replay has {_said(replayed)}"
    elif replayed is None:
        what = f"is there with {_said(committed)}; the replay has no such row"
    else:
        what = f"has {_said(committed)}; the replay has {_said(replayed)}"
    return f"{key} {what}" + (f" ({row['reason']})" if row["reason"] else "")


def _said(values: Mapping[str, str | None]) -> str:
    return (
        ", ".join(f"{name} {value}" for name, value in values.items()) or "nothing else"
    )
