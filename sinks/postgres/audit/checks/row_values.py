"""Compares the values in result tables with what the ledger knows of them.

In one snapshot of each database of an output::

    a row of a window that is open == what its state says
    windows that were settled == the ledger's digest of them
    rows of panes, revisions, functions and joins of each batch
        == the ledger's digest of the batch

State also has the events that wait to be shown. A row whose window has such events is
older than its state, so it is not compared. Rows that predate digests are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    AuditedDatabase,
    AuditedDatabases,
)
from tallyweir.sinks.postgres.audit.checks.branches import BranchFindings
from tallyweir.sinks.postgres.audit.checks.ledger_ranges import (
    LedgerRanges,
    read_claims,
)
from tallyweir.sinks.postgres.audit.checks.written_again import WrittenAgainSearch
from tallyweir.sinks.postgres.audit.checks.written_outputs import (
    WrittenOutput,
    read_written_outputs,
)
from tallyweir.sinks.postgres.audit.receipt import (
    VIOLATIONS_SHOWN,
    Check,
    OutputCoverage,
    judge,
    not_applicable,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    accepted_losses,
)
from tallyweir.sinks.postgres.outputs.keyed_table import SEQUENCE
from tallyweir.sinks.postgres.outputs.outbox_table import MESSAGE_COLUMNS
from tallyweir.sinks.postgres.outputs.window_columns import REVISION_COLUMNS
from tallyweir.sinks.postgres.server.columns import Column, table_identifier
from tallyweir.sinks.postgres.server.naming import HOME, revisions_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.row_digest import (
    RESULTS,
    REVISIONS,
    RowDigest,
    row_hash,
    row_text,
    stored,
)
from tallyweir.sinks.protocol.guarantee import Guarantee

_OUTPUTS = load_statements("tallyweir.sinks.postgres.ledger", "outputs.sql")
_VALUES = load_statements("tallyweir.sinks.postgres.audit.checks", "row_values.sql")

_BY_WRITER = "that no row was written again since its batch, and its position"
#: Rows that tasks committed by themselves: what another check covers, and what no check
#: covers.
_POSITIONS_ONLY = (
    "the positions of its rows and how many they are",
    "the values of its other columns",
)
#: Not a column of the table: whether the watermark has yet to pass the window.
_EARLY = Column(name="early", postgres_type="boolean")
_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """The ledger's digests of one output by batch, at home and elsewhere.

    Attributes:
        by_batch: Digests from the home's own transactions, by kind of table and batch.
        first: The first batch with digests; None if there is none yet.
        has_former: Whether some batches that count have no digests.
        settled_through: The watermark before the first batch with digests.
    """

    by_batch: Mapping[str, dict[int | None, RowDigest]]
    first: int | None
    has_former: bool
    settled_through: object


@dataclass(slots=True)
class _Findings:
    """Findings of all outputs."""

    rows: int = 0
    violations: list[str] = field(default_factory=list)
    outputs: list[OutputCoverage] = field(default_factory=list)


def check_row_values(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    ranges: LedgerRanges,
    branches: BranchFindings,
) -> tuple[Check, tuple[OutputCoverage, ...]]:
    """Compare every row for which the ledger has something to compare.

    Runs inside the caller's snapshots.

    Returns:
        The check, and what verify covered of each output.
    """
    written = read_written_outputs(databases.home.connection, pipeline.name)
    search = WrittenAgainSearch(
        databases=databases, pipeline=pipeline, ranges=ranges, branches=branches
    )
    found = _Findings()
    for output in pipeline.outputs:
        told = written.get(output.table)
        if _is_copied(pipeline, output):
            found.outputs.append(_coverage(output, 0, *_POSITIONS_ONLY))
            continue
        if told is None:
            found.outputs.append(
                _coverage(output, 0, "", "its rows: no driver has told its columns")
            )
            continue
        if output.kind.has_event_rows:
            again = search.look(output, told)
            found.rows += again.rows
            found.violations += again.violations
            found.outputs.append(
                _coverage(output, again.rows, _BY_WRITER, "; ".join(again.missed))
            )
            continue
        audit = _OutputAudit(databases, pipeline, output, told, branches)
        audit.run()
        found.rows += audit.rows
        found.violations += audit.violations
        found.outputs.append(audit.coverage())
    outputs = tuple(found.outputs)
    if not found.rows and not found.violations:
        why = "no row is there that the ledger keeps values of"
        return not_applicable("row_values", unit="rows", why=why), outputs
    check = judge(
        "row_values", checked=found.rows, unit="rows", violations=found.violations
    )
    return check, outputs


def _is_copied(pipeline: AuditedPipeline, output: AuditedOutput) -> bool:
    """Tell whether tasks wrote the rows, each in transactions of its own."""
    is_exact = pipeline.guarantee is Guarantee.EXACTLY_ONCE
    return output.kind.has_event_rows and not is_exact


class _OutputAudit:
    """Compares the rows of one output, in each of its databases."""

    def __init__(
        self,
        databases: AuditedDatabases,
        pipeline: AuditedPipeline,
        output: AuditedOutput,
        told: WrittenOutput,
        branches: BranchFindings,
    ) -> None:
        self._databases = databases
        self._pipeline = pipeline
        self._output = output
        self._told = told
        self._branches = branches
        self._claims = _read_claims(databases.home.connection, pipeline.name, output)
        self.rows = 0
        self.violations: list[str] = []
        self._former = 0
        self._waiting = 0
        self._unread: set[str] = set()

    def run(self) -> None:
        """Compare the output in each of its databases."""
        for database in self._databases.of(self._output):
            if self._output.kind.sends_messages:
                self._compare_messages(database)
                continue
            columns = self._readable(database)
            if columns is None:
                continue
            if self._output.kind.has_windows:
                self._compare_windows(database, columns)
            else:
                self._compare_batches(
                    database, RESULTS, self._output.table, columns, SEQUENCE
                )

    def coverage(self) -> OutputCoverage:
        """Say what was compared, and what was not."""
        missed = sorted(self._unread)
        if self._output.kind.has_windows:
            missed.append(
                "whether they are final"
                if self._told.discards
                else "whether a row says on_time or late"
            )
        if self._former:
            missed.append(f"{self._former} rows from before digests were kept")
        if self._output.loss is not None:
            missed.append(accepted_losses([self._output]))
        if self._waiting:
            missed.append(f"{self._waiting} windows with events that wait to be shown")
        return _coverage(
            self._output,
            self.rows,
            f"the values of {self.rows} rows" if self.rows else "",
            "; ".join(missed),
        )

    def _readable(self, database: AuditedDatabase) -> tuple[Column, ...] | None:
        """Return the columns that a row's digest covers; None if some are gone."""
        present = database.columns(self._output.identifier)
        newest = self._told.versions[-1].columns
        missing = [c.name for c in newest if c.name not in present]
        if missing:
            if self._claims.first is not None or self._claims.has_former:
                self.violations.append(
                    f"{self._where(database)}: the table has no column "
                    f"{', '.join(missing)}"
                )
            return None
        gone = [c.name for c in self._told.columns if c.name not in present]
        if gone:
            self._unread.add(
                f"rows of former versions, whose column {', '.join(gone)} is gone"
            )
            return None
        return self._told.columns

    def _compare_windows(
        self, database: AuditedDatabase, columns: Iterable[Column]
    ) -> None:
        unhashed = {"final"} if self._told.discards else {"final", "pane"}
        hashed = [c for c in columns if c.name not in unhashed]
        if self._told.discards:
            self._compare_batches(
                database, RESULTS, self._output.table, hashed, SEQUENCE
            )
        else:
            self._compare_settled(database, hashed)
            self._compare_open(database)
        revisions = revisions_table(self._output.table)
        revised = [c for c in columns if c.name != SEQUENCE.name]
        wanted = {c.name for c in (*revised, *REVISION_COLUMNS)}
        if (
            self._told.newest.get("revisions")
            and wanted <= database.columns(table_identifier(revisions)).keys()
        ):
            self._compare_batches(
                database,
                REVISIONS,
                revisions,
                (*revised, *REVISION_COLUMNS),
                REVISION_COLUMNS[0],
            )

    def _compare_settled(
        self, database: AuditedDatabase, columns: Iterable[Column]
    ) -> None:
        """Compare the settled windows with the sum of their digests."""
        claims = self._claims
        if claims.first is None:
            return
        then = self._told.version_at(claims.first)
        row = database.fetch(
            _VALUES["settled_windows"].format(
                table=self._output.identifier, hash=row_hash(stored(columns))
            ),
            settled_through=claims.settled_through if claims.has_former else None,
            closed_through=then.closed_through if claims.has_former else None,
            lateness=f"{then.layout['allowed_lateness_us']} microseconds",
        )[0]
        self._former += row["former"]
        self.rows += row["rows"]
        claimed = sum(self._claimed(database, RESULTS).values(), RowDigest())
        held = RowDigest(row["rows"], int(row["sum"]))
        if held != claimed:
            self.violations.append(
                f"{self._where(database)}: " + _difference(held, claimed, "windows")
            )

    def _compare_open(self, database: AuditedDatabase) -> None:
        """Compare each window that may still change with its state."""
        shown = self._told.shown_by_state
        state = database.state_table(self._pipeline, self._output.table)
        if shown is None:
            self._unread.add("open windows: no driver has told their functions")
            return
        if not database.columns(state):
            self.violations.append(
                f"{self._where(database)}: the table of its open windows is gone"
            )
            return
        columns = stored(column for column, _ in shown)
        if database.name == HOME:
            # In a participant, a branch may have seen another watermark than the
            # home's snapshot has.
            owed_early = sql.SQL("coalesce(window_end > {}, true)").format(
                sql.Literal(self._pipeline.watermark)
            )
            shown = [*shown, (_EARLY, owed_early)]
            columns = [*columns, (_EARLY, sql.SQL("pane = 'early'"))]
        waits = "tallyweir_waiting_since IS NOT NULL" if self._told.waits else "false"
        row = database.fetch(
            _VALUES["open_windows"].format(
                place=row_text(stored(self._told.keys)),
                owed=row_text(shown),
                held=row_text(columns),
                waits=sql.SQL(waits),
                state=state,
                table=self._output.identifier,
            ),
            shown=VIOLATIONS_SHOWN,
        )[0]
        self.rows += row["rows"]
        self._waiting += row["waiting"]
        where = self._where(database)
        self.violations += [f"{where}: {_told_of(one)}" for one in row["examples"]]
        hidden = row["differing"] - len(row["examples"])
        if hidden:
            self.violations.append(f"{where}: and {hidden} more open windows")

    def _compare_batches(
        self,
        database: AuditedDatabase,
        kind: str,
        table: str,
        columns: Iterable[Column],
        sequence: Column,
    ) -> None:
        """Compare the rows of each batch with its digest."""
        if self._claims.first is None:
            return
        rows = database.fetch(
            _VALUES["digests_by_batch"].format(
                table=table_identifier(table),
                sequence=sql.Identifier(sequence.name),
                hash=row_hash(stored(columns)),
            ),
            first=self._claims.first,
        )
        claimed = self._claimed(database, kind)
        self._judge_batches(f"{table}{database.place}", rows, claimed, "rows")

    def _compare_messages(self, home: AuditedDatabase) -> None:
        """Compare the messages that wait with the digest of each batch."""
        if self._claims.first is None:
            return
        (sent,) = home.fetch(_VALUES["sent_through"], pipeline=self._pipeline.name)
        rows = home.fetch(
            _VALUES["waiting_messages"].format(hash=row_hash(stored(MESSAGE_COLUMNS))),
            pipeline=self._pipeline.name,
            topic=self._output.table.removeprefix("outbox:"),
            first=self._claims.first,
            sent_through=sent["sequence"],
        )
        claimed = {
            batch: digest
            for batch, digest in self._claimed(home, RESULTS).items()
            if batch is not None and batch > sent["sequence"]
        }
        self._unread.add("messages of batches that the relay has begun to send")
        self._judge_batches(self._output.table, rows, claimed, "messages")

    def _judge_batches(
        self,
        place: str,
        rows: Iterable[DictRow],
        claimed: Mapping[int | None, RowDigest] | Mapping[int, RowDigest],
        unit: str,
    ) -> None:
        held = {r["sequence"]: RowDigest(r["rows"], int(r["sum"] or 0)) for r in rows}
        self.rows += sum(digest.rows for digest in held.values())
        if self._claims.has_former:
            self._unread.add(f"{unit} of batches from before digests were kept")
        wanted_of = dict(claimed)
        for batch in sorted({*held, *wanted_of}, key=lambda one: (one is None, one)):
            found = held.get(batch, RowDigest())
            wanted = wanted_of.get(batch, RowDigest())
            if found != wanted:
                name = "no batch" if batch is None else f"batch {batch}"
                self.violations.append(
                    f"{place}: of {name}, " + _difference(found, wanted, unit)
                )

    def _claimed(
        self, database: AuditedDatabase, kind: str
    ) -> dict[int | None, RowDigest]:
        """Return the digests that transactions left in a database, by batch."""
        claimed: dict[int | None, RowDigest] = {}
        if database.name == HOME:
            claimed |= self._claims.by_batch.get(kind, {})
        for marker in self._branches.markers[database.name]:
            if marker.sequence < self._output.owing_from:
                continue
            kept = (marker.digests or {}).get(self._output.table, {}).get(kind)
            if kept is not None:
                former = claimed.get(marker.sequence, RowDigest())
                claimed[marker.sequence] = former + RowDigest.from_json(kept)
        return claimed

    def _where(self, database: AuditedDatabase) -> str:
        return f"{self._output.table}{database.place}"


def _read_claims(
    home: Connection[TupleRow], pipeline: str, output: AuditedOutput
) -> _Claims:
    rows = [
        row
        for row in read_claims(home, pipeline, output)
        if row["sequence"] >= output.owing_from
    ]
    by_batch: dict[str, dict[int | None, RowDigest]] = {}
    kept = [row for row in rows if row["digests"] is not None]
    for row in kept:
        for kind, digest in row["digests"].items():
            of_kind = by_batch.setdefault(kind, {})
            of_kind[row["sequence"]] = RowDigest.from_json(digest)
    return _Claims(
        by_batch=by_batch,
        first=kept[0]["sequence"] if kept else None,
        has_former=len(kept) < len(rows),
        settled_through=kept[0]["watermark_before"] if kept else None,
    )


def _difference(held: RowDigest, claimed: RowDigest, unit: str) -> str:
    if held.rows != claimed.rows:
        return (
            f"the table holds {held.rows} {unit}, the ledger has digests of "
            f"{claimed.rows}"
        )
    return f"the {held.rows} {unit} are not what was written: a value was changed since"


def _told_of(differing: DictRow) -> str:
    """Describe what is wrong with one open window."""
    place = differing["place"].replace(_SEPARATOR, ", ")
    if differing["held"] is None:
        return f"the row of the open window {place} is missing"
    if differing["owed"] is None:
        return f"the row of {place} is not final, and has no state"
    held = differing["held"].split(_SEPARATOR)
    owed = differing["owed"].split(_SEPARATOR)
    shows = ", ".join(one for one in held if one not in owed) or "nothing"
    says = ", ".join(one for one in owed if one not in held) or "nothing"
    return f"the row of {place} shows {shows}, its state says {says}"


def _coverage(
    output: AuditedOutput, rows: int, looked_at: str, not_looked_at: str
) -> OutputCoverage:
    return OutputCoverage(
        output=output.table,
        kind=output.kind.name,
        rows_compared=rows,
        looked_at=looked_at,
        not_looked_at=not_looked_at,
    )
