"""What a replay found: how much was computed again, and what of it is not the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum

#: Rows that are kept of each part and finding, to be shown.
ROWS_KEPT = 100


class ReplayVerdict(Enum):
    """What a replay proves."""

    VERIFIED = "VERIFIED BY REPLAY"
    #: Nothing differs of what was looked at, and that is not all.
    PARTLY = "PARTLY VERIFIED BY REPLAY"
    DIFFERENT = "DIFFERENT"
    NOTHING = "NOTHING REPLAYED"


class Finding(Enum):
    """How a row of the pipeline stands to the one that was computed again."""

    #: Computed again, and not there.
    MISSING = "missing"
    #: There, and not computed again.
    EXTRA = "extra"
    DIFFERENT = "different"
    #: Not the same, which what the ledger holds does not decide.
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    """A row that is not the same on both sides.

    Attributes:
        key: What it is told apart by.
        finding: How the sides stand to each other.
        committed: Of the columns that differ what the pipeline has; None for no row.
        replayed: The same of the replay.
        reason: Why it is undetermined; empty for any other finding.
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
        name: As people know it: a table's name, or what is in it.
        committed: Rows that the pipeline has.
        replayed: Rows that the replay has.
        equal: Rows that both have alike.
        taken: Rows that the pipeline has no more because others have taken them.
        counts: How many are not the same, by finding.
        reasons: Why rows are undetermined, with how many.
        rows: The first of each finding.
        not_compared: Why the part was not looked at; empty if it was.
        note: What must be known to read it.
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
        """Rows that should be the same and are not."""
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
    """What a replay of a pipeline found.

    Attributes:
        after_sequence: The last batch that was not computed again; 0 if all were.
        why_after: Why it and those before it were not; empty if all were.
        through_sequence: The last batch that was.
        batches: How many were.
        records: That they have read.
        seconds: How long it took to compute them.
        parts: What was held against each other.
        notes: What else must be known.
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
        """Whether something was computed again, and nothing of it differs."""
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
