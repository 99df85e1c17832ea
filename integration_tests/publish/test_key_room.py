"""The longest keys that are taken, in the real indexes that must take them."""

from __future__ import annotations

import datetime as dt
import random
import string
from decimal import Decimal

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.key_text import ENTRY_BYTES_MIN, KEY_BYTES_MAX
from tallyweir.sinks.postgres.outputs.result_tables import create_result_tables
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column

#: The longest names that pipeline files may have.
_PIPELINE = "p" * 40
_TABLE = f"{'s' * 63}.{'t' * 63}"
_STATE = "n" * 63
_LETTERS = string.ascii_letters + string.digits + "!#$%&()*+,-./:;<=>?@[]^_{|}~"

#: Of as many columns as an index has, with window and pane; the text takes the rest.
_NUMBERS = 29
_NUMBER_BYTES = 25


def _incompressible(size: int) -> str:
    """Make text that Postgres stores as long as it is."""
    return "".join(random.Random(size).choices(_LETTERS, k=size))


@pytest.mark.parametrize(
    ("key", "entry"),
    [(KEY_BYTES_MAX, ENTRY_BYTES_MIN), (3, KEY_BYTES_MAX + ENTRY_BYTES_MIN - 3)],
)
def test_the_longest_keys_of_state_and_timers_have_room(
    connection: psycopg.Connection[TupleRow], key: int, entry: int
) -> None:
    """Beside the longest names of everything else that the index holds."""
    names = (_PIPELINE, _TABLE, _incompressible(key))
    # Of the pipeline itself nothing is needed here.
    connection.execute("SET session_replication_role = replica")
    connection.execute(
        "INSERT INTO tallyweir.keyed_state (pipeline, output_table, key, name, entry, "
        "value, schema_version, sequence) VALUES (%s, %s, %s, %s, %s, '1', 1, 1)",
        (*names, _STATE, _incompressible(entry)),
    )
    connection.execute(
        "INSERT INTO tallyweir.keyed_timer (pipeline, output_table, key, name, shard, "
        "clock, fires_at, sequence) VALUES (%s, %s, %s, %s, 0, 'event', now(), 1)",
        (*names, _incompressible(entry)),
    )


def _window(*by: Column) -> WindowTable:
    return WindowTable(
        table="w",
        staging_table="output_0",
        windows=fixed_windows(1_000_000),
        by=by,
        aggregates=(),
        allowed_lateness_us=0,
        late=LatePolicy.DROP,
        # So that the pane's number is part of the key.
        discards=True,
    )


@pytest.mark.parametrize("numbers", [0, _NUMBERS])
def test_the_longest_group_of_a_window_has_room(
    connection: psycopg.Connection[TupleRow], numbers: int
) -> None:
    """Whether one text has all of the bytes or decimals their share of them."""
    columns = [Column(name=f"c{n}", postgres_type="numeric") for n in range(numbers)]
    output = _window(Column(name="name", postgres_type="text"), *columns)
    state = sql.Identifier("state_of_w")
    create_result_tables(connection, [output], lambda _: state)
    text = _incompressible(KEY_BYTES_MAX - numbers * _NUMBER_BYTES)
    values = [text, *[Decimal("1234567890" * 3 + "12345678")] * numbers]
    for table in (sql.Identifier("w"), state):
        names = ["window_start", "name", *(column.name for column in columns)]
        row = [dt.datetime(2024, 5, 1, tzinfo=dt.UTC), *values]
        if table != state:
            names, row = [*names, "tallyweir_sequence"], [*row, 2**62]
        connection.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                table,
                sql.SQL(", ").join(map(sql.Identifier, names)),
                sql.SQL(", ").join(sql.Placeholder() * len(names)),
            ),
            row,
        )


def test_postgres_refuses_what_is_not_much_longer(
    connection: psycopg.Connection[TupleRow],
) -> None:
    """Or these limits would keep out what could be kept."""
    output = _window(Column(name="name", postgres_type="text"))
    create_result_tables(connection, [output], lambda _: sql.Identifier("state_of_w"))
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="2704"):
        connection.execute(
            "INSERT INTO w (name) VALUES (%s)", (_incompressible(2_700),)
        )
