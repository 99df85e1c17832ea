"""Lookup tables as they are read: types, endless ranges, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.tables import lookup_table
from tallyweir.sinks.postgres.tables.lookup_table import read_lookup_table
from tallyweir.sinks.protocol.errors import ConfigurationError

pytestmark = pytest.mark.slow

_TYPES = {
    "boolean": (pa.bool_(), True),
    "bytea": (pa.binary(), b"\x01"),
    "date": (pa.date32(), date(2024, 5, 1)),
    "double precision": (pa.float64(), 0.5),
    "public.mood": (pa.string(), "happy"),
    "numeric": (pa.decimal128(38, 18), Decimal("1.5")),
    "smallint": (pa.int64(), 3),
    "text": (pa.string(), "a"),
    "timestamp": (pa.timestamp("us"), datetime(2024, 5, 1)),  # noqa: DTZ001
    "timestamptz": (pa.timestamp("us", tz="UTC"), datetime(2024, 5, 1, tzinfo=UTC)),
}


def _execute(connection: psycopg.Connection[TupleRow], *statements: str) -> None:
    for statement in statements:
        connection.execute(statement.encode())
    connection.commit()


def _refusal(dsn: str, **columns: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        read_lookup_table(dsn, "looked_up", columns)
    return caught.value


def test_a_column_has_one_type_with_rows_and_without(
    home_dsn: str, connection: psycopg.Connection[TupleRow]
) -> None:
    """Or a table that is empty at the first start would make other result tables."""
    names = {f"c{n}": f"c{n}" for n in range(len(_TYPES))}
    declared = ", ".join(
        f"{name} {kind}" for name, kind in zip(names, _TYPES, strict=True)
    )
    _execute(
        connection,
        "CREATE TYPE public.mood AS ENUM ('happy')",
        f"CREATE TABLE public.looked_up ({declared})",
    )
    kinds = [kind for kind, _ in _TYPES.values()]
    values = [value for _, value in _TYPES.values()]

    empty = read_lookup_table(home_dsn, "looked_up", names)
    places = ", ".join(["%s"] * len(values))
    connection.execute(
        f"INSERT INTO public.looked_up VALUES ({places})".encode(), values
    )
    connection.execute("INSERT INTO public.looked_up DEFAULT VALUES")
    connection.commit()
    full = read_lookup_table(home_dsn, "looked_up", names)

    assert kinds == empty.rows.schema.types == full.rows.schema.types
    assert [dict(zip(names, values, strict=True)), dict.fromkeys(names)] == (
        full.rows.to_pylist()
    )
    assert empty.version != full.version


def test_an_infinite_end_of_a_range_is_no_end(
    home_dsn: str, connection: psycopg.Connection[TupleRow]
) -> None:
    """Python has no such instant."""
    _execute(
        connection,
        "CREATE TABLE public.looked_up (code text, since date, till timestamptz)",
        "INSERT INTO public.looked_up VALUES ('A', '-infinity', 'infinity')",
    )
    columns = {"code": "code", "since": "since", "till": "till"}
    copy = read_lookup_table(home_dsn, "looked_up", columns, endless=("since", "till"))
    assert [{"code": "A", "since": None, "till": None}] == copy.rows.to_pylist()
    assert "LOOKUP_TYPE" == _refusal(home_dsn, **columns).code


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json", '{"a": 1}'),
        ("integer[]", "{1}"),
        ("numeric", "NaN"),
        ("numeric", "0.0000000000000000001"),
        ("uuid", "7f0c8a52-5d0f-4c0e-9d4b-0a8f4f6f9c11"),
    ],
)
def test_what_events_cannot_carry_is_refused(
    home_dsn: str, connection: psycopg.Connection[TupleRow], kind: str, value: str
) -> None:
    """Rounding a key could make two of them one."""
    _execute(
        connection,
        f"CREATE TABLE public.looked_up (code {kind})",
        f"INSERT INTO public.looked_up VALUES ('{value}')",
    )
    error = _refusal(home_dsn, code="code")
    assert ("LOOKUP_TYPE", True) == (error.code, "looked_up" in error.saw)


def test_a_large_table_is_refused_before_it_is_read(
    home_dsn: str,
    connection: psycopg.Connection[TupleRow],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By rows or by bytes, whichever comes first."""
    _execute(
        connection,
        "CREATE TABLE public.looked_up (code integer, name text)",
        "INSERT INTO public.looked_up "
        "SELECT n, repeat('x', 100) FROM generate_series(1, 50) AS n",
    )
    monkeypatch.setattr(lookup_table, "LOOKUP_ROWS_MAX", 50)
    monkeypatch.setattr(lookup_table, "LOOKUP_BYTES_MAX", 50 * 108)
    columns = {"code": "code", "name": "name"}
    assert 50 == read_lookup_table(home_dsn, "looked_up", columns).rows.num_rows

    monkeypatch.setattr(lookup_table, "LOOKUP_BYTES_MAX", 50 * 108 - 1)
    error = _refusal(home_dsn, **columns)
    assert ("LOOKUP_TOO_LARGE", True) == (error.code, "5,399 bytes" in error.saw)
    monkeypatch.setattr(lookup_table, "LOOKUP_ROWS_MAX", 49)
    error = _refusal(home_dsn, code="code")
    assert ("LOOKUP_TOO_LARGE", True) == (error.code, "49 rows" in error.saw)
