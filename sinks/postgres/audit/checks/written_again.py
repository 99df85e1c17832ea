"""Finds rows of append tables that were written again after their batch.

A row names the transaction that wrote it (``xmin``), even after it was frozen. The same
transaction wrote the ledger's rows of the batch, so they name it too. An UPDATE gives a
row another ``xmin``. That is why append tables need no digest of their values, which
every publish would have to compute.

Loading a dump gives each row a new transaction, and the ledger's rows as well.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from psycopg import sql

from tallyweir.sinks.postgres.audit.audited_databases import (
    AuditedDatabase,
    AuditedDatabases,
)
from tallyweir.sinks.postgres.audit.checks.branches import BranchFindings
from tallyweir.sinks.postgres.audit.checks.ledger_ranges import (
    LedgerRanges,
    tallied_rows,
)
from tallyweir.sinks.postgres.audit.checks.written_outputs import (
    WrittenOutput,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements

_VALUES = load_statements("tallyweir.sinks.postgres.audit.checks", "row_values.sql")


@dataclass(slots=True)
class WrittenAgain:
    """The findings in one output, over its databases."""

    rows: int = 0
    violations: list[str] = field(default_factory=list)
    #: Rows that the comparison could not cover.
    missed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writers:
    """Transactions that wrote rows of the pipeline in one database.

    Attributes:
        transactions: Transactions of batches and of acts.
        undated: Batches whose own rows in the ledger were loaded from a dump.
    """

    transactions: list[str]
    undated: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAgainSearch:
    """Searches for rows written again, inside the caller's snapshots."""

    databases: AuditedDatabases
    pipeline: AuditedPipeline
    ranges: LedgerRanges
    branches: BranchFindings

    def look(self, output: AuditedOutput, told: WrittenOutput) -> WrittenAgain:
        """Search one append output, in each of its databases."""
        found = WrittenAgain()
        for database in self.databases.of(output):
            present = database.columns(output.identifier)
            if present:
                own = present.keys() - {column.name for column in told.columns}
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
            # Another check reports rows that lie in no batch.
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
        found.violations += [
            f"{output.table}{database.place}: {rows} rows of batch {batch} were "
            "written again since"
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
    """The statements that read one output's table in one database."""

    def __init__(self, output: AuditedOutput, database: AuditedDatabase) -> None:
        name = sql.Literal(output.quoted(database.connection))
        parts = {
            "table": output.identifier,
            "definition_writers": _VALUES["definition_writers"].format(name=name),
        }
        self.rows_there = _VALUES["rows_there"].format(**parts)
        self.strangers = tallied_rows(_VALUES["rows_of_strangers"].format(**parts))
