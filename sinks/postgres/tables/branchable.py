"""Can several transactions of one database publish an output at the same time?

All branches of a batch are prepared before any of them commits. So a row that waits for
a row of another branch waits for its own batch, until a time-out ends it; and the batch
that is tried again waits again.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.outputs.append_table import AppendTable
from sinks.postgres.outputs.home_layout import Output
from sinks.postgres.outputs.keyed_table import KeyedTable
from sinks.postgres.outputs.window_table import WindowTable
from sinks.postgres.server.branch_names import database_of
from sinks.postgres.server.columns import POSITION_COLUMNS, table_identifier
from sinks.postgres.server.statements import load_statements
from sinks.protocol.errors import ConfigurationError

_SQL = load_statements("sinks.postgres.tables", "result_tables.sql")

_Connection = psycopg.Connection[TupleRow]


def check_branchable(connection: _Connection, outputs: Sequence[Output]) -> None:
    """Refuse tables whose branches could wait for each other, or miss rows.

    Args:
        connection: To a database in which all of their tables exist.
        outputs: Those that publish there.

    Raises:
        ConfigurationError: ``TABLE_REFUSES_BRANCHES``.
    """
    tables = {
        table_identifier(output.table).as_string(connection): output
        for output in outputs
        if isinstance(output, AppendTable | WindowTable | KeyedTable)
    }
    split = [name for name, output in tables.items() if _is_split(output)]
    for name in split:
        _check_keys(connection, name, tables[name])
    if split:
        _check_references(connection, list(tables), split)


def _is_split(output: Output) -> bool:
    """Tell whether a database publishes an output by several transactions."""
    databases = {database_of(branch) for branch in output.branches}
    return len(databases) < len(output.branches)


def _check_keys(connection: _Connection, name: str, output: Output) -> None:
    """Refuse keys that rows of two events may both have."""
    assert isinstance(output, AppendTable), "no other output has branches: N"
    written = sorted(column.name for column in output.columns)
    keys = connection.execute(
        _SQL["keys_over"],
        {
            "table": name,
            "columns": written,
            # No two events have one position.
            "apart": [column.name for column in POSITION_COLUMNS],
        },
    ).fetchall()
    if keys:
        raise _refused(
            f"Table {output.table} has the unique key "
            f"{', '.join(key for (key,) in keys)}.",
            "Rows of one batch that have the same key would wait for each other in "
            "different branches, which commit together.",
        )


def _check_references(
    connection: _Connection, tables: list[str], split: list[str]
) -> None:
    """Refuse foreign keys to rows that another branch is about to publish."""
    found = connection.execute(
        _SQL["keys_between"], {"tables": tables, "split": split}
    ).fetchall()
    for table, referenced, key in found:
        raise _refused(
            f"Table {table} has the foreign key {key} to {referenced}, and both are "
            "tables of this pipeline.",
            "A branch does not see the rows that others publish with it, so good rows "
            "would be refused.",
        )


def _refused(saw: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        "TABLE_REFUSES_BRANCHES",
        saw=saw,
        why=why,
        fix="Write branches: 1, or drop the key.",
    )
