"""Gives each result table of a database to one pipeline.

If two pipelines wrote to one table, neither could account for its rows, and the windows
of one would overwrite those of the other. So a pipeline claims its tables before it
writes. If two pipelines start at once, the second waits until the first has committed
its claim, and so sees it, even if the two use different names for the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.schema.migrations import ledger_names
from tallyweir.sinks.postgres.server.columns import qualified
from tallyweir.sinks.postgres.server.naming import revisions_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

_SQL = load_statements("tallyweir.sinks.postgres.tables", "table_owners.sql")

_Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOwner:
    """A pipeline, identified together with its home."""

    installation: str
    pipeline: str

    def claim(self, connection: _Connection, tables: Sequence[str]) -> frozenset[str]:
        """Claim some tables of one database; the caller commits.

        Returns:
            The tables that it had claimed before, as ``schema.table``.

        Raises:
            ConfigurationError: ``TABLE_OWNED``: another pipeline has one of them, or
                two outputs share one; or ``TABLE_ELSEWHERE``.
        """
        relations = sorted(map(qualified, tables))
        self._check_different(relations)
        values = self._values(relations)
        connection.execute(_SQL["hold_claims"])
        new = {one for (one,) in connection.execute(_SQL["claim"], values)}
        # A new statement sees the claims that were committed during the wait.
        row = connection.execute(_SQL["owned_by_others"], values).fetchone()
        if row is not None:
            raise self._refusal(*row)
        for table in tables:
            check_meant(connection, table, is_new=qualified(table) in new)
        return frozenset(relations) - new

    def release(self, connection: _Connection, kept: Iterable[str]) -> None:
        """Release all tables there except those that the pipeline still writes.

        Call it only once no driver works by a former version; the caller commits.
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
            saw=f"Pipeline {self.pipeline} is configured to write table "
            f"{ours}{shared}. {theirs} belongs to pipeline {pipeline}{where} "
            f"since {since.isoformat(sep=' ', timespec='seconds')}.",
            why="Neither pipeline can account for the rows in a shared table, and "
            "windows of one would overwrite those of the other.",
            fix=f"Give the output of {self.pipeline} another table; or start "
            f"{pipeline} with a file that does not write it, which releases it. "
            "For a table that both have written, or whose owner is gone, see "
            "docs/operations.md, A table of two pipelines.",
        )


def find_claims_holder(connection: _Connection, *, doing: str) -> RetryableError | None:
    """Say which start keeps others from claiming tables; None if there is none."""
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
        "two owners.",
        fix="If that transaction ends by itself, nothing: the driver then continues. "
        "Otherwise end what the other start waits for.",
    )


def check_meant(connection: _Connection, table: str, *, is_new: bool) -> None:
    """Refuse a name without a schema that may be meant for another table.

    The name means a table in ``public``. The user may mean a table of that name in
    another schema if ``public`` has no such table, or if a login finds the other one
    first. A pipeline that already writes its table is refused only for a table in the
    ledger's schema, where no user's table belongs.

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
        saw=f"A table {other} exists; the name {table} in a pipeline file means "
        f"{ours}, which {'exists too' if is_there else 'does not exist'}.",
        why="Constraints of one table would not apply to rows in the other, and "
        "readers may query the wrong table.",
        fix=f"Drop or rename the unwanted table, or write {ours} in the file."
        if is_there
        else f"Move it: ALTER TABLE {schema}.{table} SET SCHEMA public; or write "
        f"{ours} in the file, or the other table's name with its schema.",
    )


def rename_tables(connection: _Connection, pipeline: str, table: str, to: str) -> None:
    """Record the new names of a pipeline's table and of its revisions.

    Call it in the transaction that renames the table; for tables of the home only.
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
