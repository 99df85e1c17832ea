"""The result of a dry publish, and how it compares with the committed results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pandas as pd

from tallyweir.sinks.postgres.audit import Receipt
from tallyweir.sinks.postgres.audit.why.slice_results import (
    Position,
    RecordFate,
    SliceResults,
    TableRows,
)
from tallyweir.spark_jobs.notebook.captured_slice import rows_as_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class DryPublish:
    """The slice, published as one batch into scratch databases.

    Attributes:
        results: Results of the slice.
        receipt: The receipt of ``verify`` on it.
        restagings: Times that it was staged again without rows that a table refused.
        not_demanded: Constraints of the pipeline's own tables that scratch tables lack,
            such as foreign keys; empty if both refuse the same rows.
    """

    results: SliceResults
    receipt: Receipt
    restagings: int
    not_demanded: tuple[str, ...]

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """The rows that each result table gets, including outboxes."""
        shown = {
            table: rows_as_frame(rows) for table, rows in self.results.tables.items()
        }
        outbox = rows_as_frame(self.results.outbox)
        return shown if outbox.empty else shown | {"tallyweir.outbox": outbox}

    def counts(self) -> pd.DataFrame:
        """Show the ledger's counts of each partition; each row obeys the law."""
        return rows_as_frame(self.results.counts)

    def put_aside(self) -> pd.DataFrame:
        """Show the records that became no result: dead, duplicate, late and the rest.

        Rows that a table refused are dead with the reason REJECTED_BY_POSTGRES.
        """
        return fates_as_frame(self.results, sorted(self.results.fates))


def fates_as_frame(
    results: SliceResults, positions: Iterable[Position]
) -> pd.DataFrame:
    """Show the outcomes of the records at some positions."""
    rows = [(*at, *_outcome(results, at)) for at in positions]
    columns = ["topic", "partition", "offset", "outcome", "why"]
    return pd.DataFrame(rows, columns=columns)


def _outcome(results: SliceResults, at: Position) -> tuple[str, str]:
    fate = results.fate(at)
    return fate.outcome, fate.why


_EQUAL = "equal"
#: Verdict on a row of the dry publish that is not in the table.
_MISSING = "missing"
#: Verdict on a row in the table that the dry publish does not make.
_EXTRA = "extra"
_DIFFERENT = "different"

#: Relative difference that sums may have if they are added up in another order.
_SUMS_DIFFER = 1e-9

_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Rows that are equal, missing, extra or different, and why, as the ledger knows.

    Attributes:
        summary: Number of rows of each table by verdict.
        rows: The rows that are not equal: table, key, verdict, difference, reason.
        records: Every record of the slice: its outcome in the dry publish and in the
            pipeline.
        notes: Notes that readers of the comparison need.
    """

    summary: pd.DataFrame
    rows: pd.DataFrame
    records: pd.DataFrame
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        dry: SliceResults,
        committed: SliceResults | None,
        positions: Sequence[Position],
    ) -> Self:
        """Compare the results of two databases for the same records.

        Args:
            dry: Results of the scratch database.
            committed: Results of the pipeline's home; None if it has never run there.
            positions: The records of the slice.
        """
        pair = _Pair(dry=dry, committed=committed)
        compared = list(pair.compare_tables())
        verdicts = Counter((one["table"], one["verdict"]) for one in compared)
        tables = sorted({*dry.tables})
        kinds = (_EQUAL, _MISSING, _EXTRA, _DIFFERENT)
        columns = ["table", "key", "verdict", "differs", "why"]
        return cls(
            summary=pd.DataFrame(
                [[verdicts[table, kind] for kind in kinds] for table in tables],
                index=pd.Index(tables, name="table"),
                columns=list(kinds),
            ),
            rows=pd.DataFrame(
                [one for one in compared if one["verdict"] != _EQUAL], columns=columns
            ),
            records=pd.DataFrame([pair.compare_record(at) for at in positions]),
            notes=tuple(pair.notes()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    dry: SliceResults
    committed: SliceResults | None

    def notes(self) -> Iterator[str]:
        if self.committed is None:
            yield "No driver of the pipeline has ever started: nothing is committed."
            return
        if self.committed.definition_hash != self.dry.definition_hash:
            yield "The pipeline's file differs from the one that its last driver ran."
        if self.committed.outside:
            yield (
                f"The pipeline has read {self.committed.outside} records in batches "
                "that are not, or not wholly, in the slice; its windows hold them too."
            )
        unkeyed = sorted(t for t, rows in self.dry.tables.items() if not rows.key)
        if unkeyed:
            yield f"Rows of {', '.join(unkeyed)} have no key to compare them by."

    def compare_record(self, at: Position) -> dict[str, object]:
        dry, committed = self.dry.fate(at), self._committed_fate(at)
        is_equal = dry.outcome == committed.outcome
        whys = [("dry run: ", dry.why), ("committed: ", committed.why)]
        return {
            **at._asdict(),
            "dry_run": dry.outcome,
            "committed": committed.outcome,
            "verdict": _EQUAL if is_equal else _DIFFERENT,
            "why": ""
            if is_equal
            else "; ".join(f"{side}{why}" for side, why in whys if why),
        }

    def compare_tables(self) -> Iterator[dict[str, object]]:
        for table, rows in sorted(self.dry.tables.items()):
            if rows.key:
                there = {} if self.committed is None else self.committed.tables
                yield from self._compare_rows(table, rows, there.get(table))

    def _compare_rows(
        self, table: str, rows: TableRows, committed: TableRows | None
    ) -> Iterator[dict[str, object]]:
        mine, theirs = rows.by_key(), {} if committed is None else committed.by_key()
        has_positions = rows.key[-1] == "kafka_offset"
        keys = mine.keys() | (theirs.keys() if has_positions else ())
        for key in sorted(keys, key=repr) if not has_positions else sorted(keys):
            ours, has = mine.get(key), theirs.get(key)
            verdict, differs = _judge(ours, has)
            why = ""
            if verdict != _EQUAL:
                why = (
                    self._why_row(Position(*key), verdict)
                    if has_positions
                    else self._why_window(verdict)
                )
            yield {
                "table": table,
                "key": _written(rows.key, key),
                "verdict": verdict,
                "differs": differs,
                "why": why,
            }

    def _why_row(self, at: Position, verdict: str) -> str:
        dry, committed = self.dry.fate(at), self._committed_fate(at)
        if verdict == _MISSING:
            is_lost = committed.outcome == "committed"
            return _told(committed) + (", and the row is gone" if is_lost else "")
        if verdict == _EXTRA:
            return f"dry run: {_told(dry)}"
        return self._changed()

    def _why_window(self, verdict: str) -> str:
        if self.committed is None:
            return "the pipeline has never run"
        if self.committed.outside:
            return "windows hold records that are not in the slice"
        changed = self._changed()
        differing = "see records for those that were judged differently"
        return changed or (
            "no such window is there" if verdict == _MISSING else differing
        )

    def _changed(self) -> str:
        assert self.committed is not None, "there is something to differ from"
        is_same = self.committed.definition_hash == self.dry.definition_hash
        return "" if is_same else "the pipeline has changed since its last driver"

    def _committed_fate(self, at: Position) -> RecordFate:
        if self.committed is None:
            return RecordFate(outcome="not read", why="the pipeline has never run")
        return self.committed.fate(at)


def _judge(ours: _Row | None, theirs: _Row | None) -> tuple[str, str]:
    if theirs is None:
        return _MISSING, ""
    if ours is None:
        return _EXTRA, ""
    # A table may have columns that the pipeline does not fill.
    differs = [
        f"{name}: {value!r} here, {theirs[name]!r} there"
        for name, value in ours.items()
        if name in theirs and not _are_equal(value, theirs[name])
    ]
    return (_DIFFERENT, "; ".join(differs)) if differs else (_EQUAL, "")


def _are_equal(one: object, other: object) -> bool:
    """Compare two values; sums of floating point depend on the order of addition."""
    if isinstance(one, float) and isinstance(other, float):
        both_none = math.isnan(one) and math.isnan(other)
        return both_none or math.isclose(one, other, rel_tol=_SUMS_DIFFER)
    return one == other


def _told(fate: RecordFate) -> str:
    where = "" if fate.sequence is None else f" in batch {fate.sequence}"
    why = f": {fate.why}" if fate.why else ""
    return f"{fate.outcome}{where}{why}"


def _written(names: Sequence[str], key: tuple[Any, ...]) -> str:
    if names[-1] == "kafka_offset":
        topic, partition, offset = key
        return f"{topic}[{partition}]@{offset}"
    return ", ".join(
        value.isoformat() if hasattr(value, "isoformat") else str(value)
        for value in key
    )
