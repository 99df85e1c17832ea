"""Finds rows of append tables that were written again after their batch.

A row names the transaction that wrote it (``xmin``), also after it was frozen, and so
do the ledger's rows of its batch, which the same transaction has written. A row that
somebody updates has another one. So the values of append tables need no digest, which
every publish would have to compute.

A dump that is loaded gives each row a new transaction, those of the ledger as well.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from psycopg import sql

from sinks.postgres.audit.audited_databases import AuditedDatabase, AuditedDatabases
from sinks.postgres.audit.checks.branches import BranchFindings
from sinks.postgres.audit.checks.ledger_ranges import LedgerRanges
from sinks.postgres.audit.checks.written_outputs import WrittenOutput, present_columns
from sinks.postgres.ledger.audited_pipeline import AuditedOutput, AuditedPipeline
from sinks.postgres.server.branch_names import HOME
from sinks.postgres.server.sqlstate import translated
from sinks.postgres.server.statements import load_statements

_OUTPUTS = load_statements("sinks.postgres.ledger", "outputs.sql")
_VALUES = load_statements("sinks.postgres.audit.checks", "row_values.sql")


@dataclass(slots=True)
class WrittenAgain:
    """What was found of one output, over its databases."""

    rows: int = 0
    violations: list[str] = field(default_factory=list)
    #: What the comparison says nothing of.
    missed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writers:
    """Transactions that have written rows of the pipeline in one database.

    Attributes:
        transactions: Of batches and of acts.
        undated: Batches whose own rows in the ledger were loaded from a dump.
    """

    transactions: list[str]
    undated: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAgainSearch:
    """Looks for such rows, inside of the caller's snapshots."""

    databases: AuditedDatabases
    pipeline: AuditedPipeline
    ranges: LedgerRanges
    branches: BranchFindings

    def look(self, output: AuditedOutput, told: WrittenOutput) -> WrittenAgain:
        """Look at one append output, in each of its databases."""
        found = WrittenAgain()
        for database in self.databases.of(output):
            with translated(f"reading database {database.name}"):
                present = present_columns(database.connection, output.identifier)
            if present:
                own = present - {column.name for column in told.columns}
                self._look_into(database, output, own, found)
        return found

    def _look_into(
        self,
        database: AuditedDatabase,
        output: AuditedOutput,
        own: set[str],
        found: WrittenAgain,
    ) -> None:
        writers = self._read_writers(database)
        statements = _Statements(output, database)
        ((total, redefined),) = (
            row.values() for row in database.fetch(statements.rows_there)
        )
        found.rows += total
        if redefined:
            found.missed.append(
                f"the values of {redefined} rows that a change of the table's "
                "definition wrote again"
            )
        changed: dict[int, int] = defaultdict(int)
        loaded = 0
        values = {**self.ranges.parameters, "writers": writers.transactions}
        for row in database.fetch(statements.strangers, **values):
            if row["sequence"] in writers.undated:
                loaded += row["found"]
            # What lies in no batch, another check tells.
            elif row["sequence"] is not None:
                changed[row["sequence"]] += row["found"]
        if loaded:
            found.missed.append(f"the values of {loaded} rows loaded from a dump")
        if changed and own:
            found.missed.append(
                f"the values of {sum(changed.values())} rows that were written again "
                f"since their batch, maybe for their owner's {', '.join(sorted(own))}"
            )
            return
        where = output.table + ("" if database.name == HOME else f" in {database.name}")
        found.violations += [
            f"{where}: {rows} rows of batch {batch} were written again since"
            for batch, rows in sorted(changed.items())
        ]

    def _read_writers(self, database: AuditedDatabase) -> _Writers:
        rows = []
        if database.name == HOME:
            rows += database.fetch(
                _VALUES["writers_at_home"], pipeline=self.pipeline.name
            )
        if self.branches.markers.get(database.name):
            rows += database.fetch(
                _VALUES["writers_of_branches"],
                installation=self.pipeline.installation,
                pipeline_number=self.pipeline.number,
            )
        return _Writers(
            transactions=sorted({row["transaction"] for row in rows}),
            undated=frozenset(row["sequence"] for row in rows if not row["is_dated"]),
        )


class _Statements:
    """What is asked of one output's table in one database."""

    def __init__(self, output: AuditedOutput, database: AuditedDatabase) -> None:
        name = sql.Literal(output.quoted(database.connection))
        parts = {
            "table": output.identifier,
            "definition_writers": _VALUES["definition_writers"].format(name=name),
        }
        self.rows_there = _VALUES["rows_there"].format(**parts)
        self.strangers = _OUTPUTS["tallied_rows"].format(
            table=_VALUES["rows_of_strangers"].format(**parts)
        )
