"""Lets a pipeline and its fork change places, so that readers find the fork's rows.

It is one act on both: it fences a driver of either, and renames the tables, also in the
ledger. Neither pipeline reads less or more because of it, so nothing is lost or
doubled. Each goes on where it stands, one in the tables that readers know, the other in
shadows. The same act with the two exchanged takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    fetch_one,
    read_pipeline,
)
from tallyweir.sinks.postgres.server.columns import is_there, table_identifier
from tallyweir.sinks.postgres.server.naming import revisions_table, state_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import ActRequest, acting
from tallyweir.sinks.postgres.steering.fork import left_behind, shadow_of
from tallyweir.sinks.postgres.steering.forked_rows import (
    OUTPUT_COLUMNS,
    bare_name,
    rename_definitions,
)
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables
from tallyweir.sinks.postgres.tables.table_owners import rename_tables
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

_SQL = load_statements("tallyweir.sinks.postgres.steering", "switch.sql")
_ACT = load_statements("tallyweir.sinks.postgres.steering", "act.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The tables that changed places.

    Attributes:
        tables: Tables that readers know; they now show the fork's rows.
        former: The tables that now have the other pipeline's rows, by these names.
        left: Tables for which the fork has no output: the other goes on with them.
    """

    tables: tuple[str, ...]
    former: Mapping[str, str]
    left: tuple[str, ...]


def switch(
    connection: Connection[TupleRow], request: ActRequest, shadowing: str
) -> Switch:
    """Put the tables of a pipeline that works in the shadow in the place of another's.

    Args:
        connection: To the home, as the owner of the tables.
        request: The pipeline whose rows readers find now, and why.
        shadowing: The pipeline whose rows they are to find.

    Raises:
        ConfigurationError: As ``acting``; ``SWITCH_NOT_SHADOWED``; ``SWITCH_UNFIT``:
            a table in front has what the one in its place would not have.
        RetryableError: ``SWITCH_BEHIND``: readers would find less than before; or as
            ``acting``, and when a reader holds a table for so long that it cannot be
            renamed.

    Crash:
        Before the COMMIT readers find what they did, and no driver is fenced; after it
        they find the other pipeline's rows, all of them.
    """
    front = request.pipeline
    beside = replace(request, pipeline=shadowing)
    # Hold snapshots before either is kept from publishing, and always in one order.
    both = sorted((front, shadowing))
    with (
        acting(connection, request, snapshots_of=both) as act,
        acting(connection, beside) as other,
    ):
        shadows = read_shadow_tables(connection, shadowing)
        if not shadows or read_shadow_tables(connection, front):
            raise ConfigurationError(
                "SWITCH_NOT_SHADOWED",
                saw=f"{shadowing} does not work in the shadow of {front}.",
                why="Two pipelines can change places only if one has shadows of the "
                "other's tables.",
                fix="Name the pipeline in front first, then its fork; tallyweir fork "
                f"{front} NEW makes one.",
            )
        _hold(connection, both)
        _check_read_as_far(connection, front, shadowing)
        written = _tables(connection, shadowing)
        switched = {t: s for t, s in shadows.items() if s in written}
        former = {table: shadow_of(table, front) for table in switched}
        there = _tables(connection, front)
        _rename_outputs(connection, front, former)
        _rename_outputs(
            connection, shadowing, {s: table for table, s in switched.items()}
        )
        for table, shadow in switched.items():
            values = {"pipeline": shadowing, "front": table}
            connection.execute(_SQL["delete_shadow"], values)
            if table in there:
                values = {"pipeline": front, "front": table, "shadow": former[table]}
                connection.execute(_SQL["insert_shadow"], values)
            _copy_grants(connection, table, shadow)
        connection.execute(_ACT["hurry"])
        for table, shadow in switched.items():
            _move_sequences(connection, table, shadow)
        for name, new_name in _renames(connection, front, shadowing, switched, former):
            _rename_table(connection, name, new_name)
        _check_nothing_lost(connection, former)
        done = Switch(
            tables=tuple(switched),
            former={t: s for t, s in former.items() if t in there},
            left=tuple(sorted(there - switched.keys())),
        )
        for noted in (act, other):
            noted.detail.update(front=shadowing, tables=list(done.tables))
    return done


def _hold(connection: Connection[TupleRow], pipelines: Iterable[str]) -> None:
    for one in pipelines:
        hold_tables(connection, read_pipeline(connection, one))


def _check_read_as_far(
    connection: Connection[TupleRow], front: str, shadowing: str
) -> None:
    """Refuse to show readers less than they have seen."""
    reaches = {
        (row["topic"], row["partition"], row["topic_id"]): row["reach"]
        for row in fetch(connection, _SQL["reaches"], pipeline=shadowing)
    }
    behind = [
        f"{row['topic']}[{row['partition']}] by {row['reach'] - at}"
        for row in fetch(connection, _SQL["reaches"], pipeline=front)
        if (at := reaches.get((row["topic"], row["partition"], row["topic_id"]), 0))
        < row["reach"]
    ]
    if behind:
        raise RetryableError(
            "SWITCH_BEHIND",
            saw=f"{shadowing} has read less than {front}: {', '.join(behind)} offsets.",
            why="Readers would see fewer events than before.",
            fix=f"Let it catch up. tallyweir pause {front} keeps the other pipeline "
            "from publishing meanwhile and does not prevent the switch.",
        )


def _tables(connection: Connection[TupleRow], pipeline: str) -> set[str]:
    row = fetch_one(connection, _SQL["definition"], pipeline=pipeline)
    definition: Mapping[str, Any] = row["definition"]
    return {output["table"] for output in definition["outputs"]}


def _rename_outputs(
    connection: Connection[TupleRow], pipeline: str, tables: Mapping[str, str]
) -> None:
    """Rename outputs in all versions and everywhere in the ledger."""
    rename_definitions(connection, pipeline, tables)
    for name, new_name in tables.items():
        rename_tables(connection, pipeline, name, new_name)
    columns = list(OUTPUT_COLUMNS)
    for row in fetch(connection, _SQL["tables_with_outputs"], columns=columns):
        statement = _SQL["rename_rows"].format(
            table=sql.Identifier(row["name"]), column=sql.Identifier(row["column"])
        )
        for name, new_name in tables.items():
            values = {"pipeline": pipeline, "from": name, "to": new_name}
            connection.execute(statement, values)


def _copy_grants(connection: Connection[TupleRow], table: str, shadow: str) -> None:
    """Grant on the shadow whatever is granted on the table whose place it takes."""
    for name, same in _with_revisions(table, shadow):
        quoted = name.as_string(connection)
        if not is_there(connection, same):
            continue
        tables = {"table": quoted, "same": same.as_string(connection)}
        for row in fetch(connection, _SQL["grants"], **tables):
            connection.execute(
                _SQL["grant"].format(
                    privilege=sql.SQL(row["privilege"]),
                    columns=_of_column(row["column"]),
                    table=same,
                    grantee=sql.SQL(row["grantee"]),
                    option=sql.SQL(row["option"]),
                )
            )


def _of_column(name: str | None) -> sql.Composable:
    if name is None:
        return sql.SQL("")
    return sql.SQL("({})").format(sql.Identifier(name))


def _move_sequences(connection: Connection[TupleRow], table: str, shadow: str) -> None:
    """Let the table in front own the sequence from which both fill a serial column.

    Otherwise the other table could not be dropped, as the one in front needs its
    sequence.
    """
    for name, same in _with_revisions(table, shadow):
        quoted = {
            "table": name.as_string(connection),
            "same": same.as_string(connection),
        }
        for row in fetch(connection, _SQL["shared_sequences"], **quoted):
            connection.execute(
                _SQL["own_sequence"].format(
                    sequence=sql.Identifier(row["schema"], row["sequence"]),
                    column=sql.SQL("{}.{}").format(same, sql.Identifier(row["column"])),
                )
            )


def _check_nothing_lost(
    connection: Connection[TupleRow], former: Mapping[str, str]
) -> None:
    """Refuse the switch if the table in front has what does not follow its name.

    A fork is refused for it, so it was added since. The tables have been renamed by
    now, so no session can add anything more before the COMMIT.
    """
    found = [
        f"{what} on {told}"
        for table, kept in former.items()
        for told, name in (
            (table, kept),
            (revisions_table(table), revisions_table(kept)),
        )
        for what in left_behind(connection, table_identifier(name))
    ]
    if found:
        raise ConfigurationError(
            "SWITCH_UNFIT",
            saw=f"The tables have {', '.join(found)}, which stays with the table when "
            "another table takes its name.",
            why="Row-level security would be off, triggers would not fire, and foreign "
            "keys would follow the former table.",
            fix="Remove it, switch, and add it to the table in front again. For "
            "row-level security, keep readers out meanwhile.",
        )


def _with_revisions(
    table: str, other: str
) -> Iterator[tuple[sql.Identifier, sql.Identifier]]:
    yield table_identifier(table), table_identifier(other)
    revisions = revisions_table(table), revisions_table(other)
    yield table_identifier(revisions[0]), table_identifier(revisions[1])


def _renames(
    connection: Connection[TupleRow],
    front: str,
    shadowing: str,
    switched: Mapping[str, str],
    former: Mapping[str, str],
) -> Iterator[tuple[sql.Identifier, sql.Identifier]]:
    """Yield each table with its new name; those that make room come first."""
    numbers = {
        pipeline: fetch_one(connection, _SQL["definition"], pipeline=pipeline)[
            "pipeline_number"
        ]
        for pipeline in (front, shadowing)
    }
    for table in switched:
        yield from _with_revisions(table, former[table])
        yield (
            state_table(numbers[front], table),
            state_table(numbers[front], former[table]),
        )
    for table, shadow in switched.items():
        yield from _with_revisions(shadow, table)
        yield (
            state_table(numbers[shadowing], shadow),
            state_table(numbers[shadowing], table),
        )


def _rename_table(
    connection: Connection[TupleRow], table: sql.Identifier, to: sql.Identifier
) -> None:
    """Rename a table within its schema, if it exists."""
    if not is_there(connection, table):
        return
    name = bare_name(connection, to)
    connection.execute(
        _SQL["rename_table"].format(table=table, name=sql.Identifier(name))
    )
