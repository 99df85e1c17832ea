"""Which pipeline a result table belongs to: one, in each database.

Rows of two pipelines in one table are accounted for by neither, and windows of one
write over those of the other. So a pipeline claims its tables before it writes. Of two
that start at once the second waits until the first has committed its claim, and so sees
it, also where the two call the same rows by different names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.schema.migrations import ledger_names
from sinks.postgres.server.columns import qualified
from sinks.postgres.server.naming import revisions_table
from sinks.postgres.server.statements import load_statements
from sinks.protocol.errors import ConfigurationError, RetryableError

_SQL = load_statements("sinks.postgres.tables", "table_owners.sql")

_Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOwner:
    """A pipeline, told apart from those of other homes."""

    installation: str
    pipeline: str

    def claim(self, connection: _Connection, tables: Sequence[str]) -> frozenset[str]:
        """Claim some tables of one database; the caller commits.

        Returns:
            Those that it had already, as ``schema.table``.

        Raises:
            ConfigurationError: ``TABLE_OWNED``: another pipeline has one of them, or
                two outputs share one; or ``TABLE_ELSEWHERE``.
        """
        relations = sorted(map(qualified, tables))
        self._check_different(relations)
        values = self._values(relations)
        connection.execute(_SQL["hold_claims"])
        new = {one for (one,) in connection.execute(_SQL["claim"], values)}
        # A statement of its own sees what was claimed by whoever was waited for.
        row = connection.execute(_SQL["owned_by_others"], values).fetchone()
        if row is not None:
            raise self._refusal(*row)
        for table in tables:
            check_meant(connection, table, is_new=qualified(table) in new)
        return frozenset(relations) - new

    def release(self, connection: _Connection, kept: Iterable[str]) -> None:
        """Let go of all tables there that are not among those that it still writes.

        Only once nobody works by a former version; the caller commits.
        """
        connection.execute(_SQL["release"], self._values(map(qualified, kept)))

    def _values(self, relations: Iterable[str]) -> dict[str, object]:
        return {
            "installation": self.installation,
            "pipeline": self.pipeline,
            "relations": list(relations),
        }

    def _check_different(self, relations: list[str]) -> None:
        twice = sorted({one for one in relations if relations.count(one) > 1})
        if twice:
            raise ConfigurationError(
                "TABLE_OWNED",
                saw=f"Two outputs of pipeline {self.pipeline} write table {twice[0]}.",
                why="Each would count the other's rows as its own.",
                fix="Give one of them another table.",
            )

    def _refusal(
        self, ours: str, theirs: str, pipeline: str, home: str, since: datetime
    ) -> ConfigurationError:
        shared = "" if ours == theirs else f", which shares rows with {theirs}"
        where = "" if home == self.installation else " of another home database"
        return ConfigurationError(
            "TABLE_OWNED",
            saw=f"Pipeline {self.pipeline} is to write table {ours}{shared}. {theirs} "
            f"belongs to pipeline {pipeline}{where} since "
            f"{since.isoformat(sep=' ', timespec='seconds')}.",
            why="Rows of two pipelines in one table are accounted for by neither, and "
            "windows of one write over those of the other.",
            fix=f"Give the output of {self.pipeline} another table; or start "
            f"{pipeline} with a file that does not write it, which releases it. "
            "docs/operations.md, A table of two pipelines, tells of a table that both "
            "have written, and of one whose owner is gone.",
        )


def find_claims_holder(connection: _Connection, *, doing: str) -> RetryableError | None:
    """Say which start keeps others from claiming their tables; None if none does."""
    row = connection.execute(_SQL["claims_holder"]).fetchone()
    if row is None:
        return None
    pid, role, program, since, blocking = row
    waits = f" It waits for pid {', '.join(map(str, blocking))}." if blocking else ""
    return RetryableError(
        "TABLE_LOCKED",
        saw=f"Another start was claiming its result tables for 30 s while {doing}: "
        f"{role}, pid {pid} {program}, in a transaction since "
        f"{since.isoformat(sep=' ', timespec='seconds')}.{waits}",
        why="Pipelines claim their tables one after the other, so that no table gets "
        "two.",
        fix="Nothing, if that ends by itself: the driver goes on then. Else end what "
        "the other start waits for.",
    )


def check_meant(connection: _Connection, table: str, *, is_new: bool) -> None:
    """Refuse a name without a schema by which somebody may mean another table.

    It is that of a table in ``public``. One of that name elsewhere is what was meant
    if there is none in ``public``, or if a login finds it there first. A pipeline that
    writes its table already is only told of one in the ledger's schema, where no
    table of a user belongs.

    Raises:
        ConfigurationError: ``TABLE_ELSEWHERE``.
    """
    if "." in table:
        return
    row = connection.execute(
        _SQL["elsewhere"],
        {"table": table, "ledger": sorted(ledger_names()), "is_new": is_new},
    ).fetchone()
    if row is None:
        return
    schema, is_there = row
    other, ours = f"{schema}.{table}", f"public.{table}"
    raise ConfigurationError(
        "TABLE_ELSEWHERE",
        saw=f"There is a table {other}; the name {table} in a pipeline file means "
        f"{ours}, which {'exists too' if is_there else 'does not exist'}.",
        why="Constraints of the one would not hold for the rows of the other, and who "
        "looks for the rows may look into the wrong one.",
        fix=f"Drop or rename the one that is not meant, or write {ours} in the file."
        if is_there
        else f"Move it: ALTER TABLE {schema}.{table} SET SCHEMA public; or write "
        f"{ours} in the file, or the other table's name with its schema.",
    )


def rename_tables(connection: _Connection, pipeline: str, table: str, to: str) -> None:
    """Note that a table of a pipeline has another name, and so its revisions.

    Inside of the transaction that renames it; for tables of the home.
    """
    for name, new_name in (
        (table, to),
        (revisions_table(table), revisions_table(to)),
    ):
        connection.execute(
            _SQL["rename"],
            {
                "pipeline": pipeline,
                "from": qualified(name),
                "to": qualified(new_name),
            },
        )


def find_other_owner(connection: _Connection, pipeline: str, table: str) -> str | None:
    """Return the pipeline that a table of the home belongs to, if it is another."""
    row = connection.execute(
        _SQL["owner"], {"pipeline": pipeline, "relation": qualified(table)}
    ).fetchone()
    return None if row is None else str(row[0])
