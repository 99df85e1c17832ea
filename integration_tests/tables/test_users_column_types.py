"""Texts and JSON go into the types of users' own tables, or the one event is dead."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.ports import RowsRejectedError

_POSITION = "kafka_topic text, kafka_partition integer, kafka_offset bigint"
_TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s')",
    "CREATE DOMAIN email AS text CHECK (value LIKE '%@%')",
    "CREATE DOMAIN member AS uuid",
)


def _driver(dsn: str, produced: str, declared: str) -> PostgresDriver:
    execute(dsn, *_TYPES, f"CREATE TABLE public.t (v {declared}, {_POSITION})")
    return PostgresDriver(dsn=dsn, layout=layout_of(append_table("t", v=produced)))


def _put(driver: PostgresDriver, values: Sequence[Any]) -> dict[int, str]:
    """Publish all values that the table takes; return the details of the others.

    The refused rows are left out and the batch is staged again, as a driver does.
    """
    refused: dict[int, str] = {}
    plan = driver.plan(len(values))
    rows = driver.positioned(plan, [(value,) for value in values])
    try:
        driver.publish(plan, driver.stage(plan, {"output_0": rows}))
    except RowsRejectedError as error:
        refused = {row.offset: row.detail for row in error.rows}
        again = PostgresDriver(dsn=driver.dsn, layout=driver.layout)
        plan = again.plan(len(values))
        kept = [row for row in rows if row[-1] not in refused]
        if kept:
            again.publish(plan, again.stage(plan, {"output_0": kept}))
    return refused


_NULL = None
_U = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"

#: By type: texts that are taken, and texts that are not.
_FACTS: dict[str, tuple[list[Any], list[str]]] = {
    "uuid": ([_U, _U.upper(), _NULL], ["", "a0eebc99", _U + "0"]),
    "jsonb": (
        ['{"a": [1, {"b": 2}]}', "null", "1.50", _NULL],
        ['{"a": 1, "a": 2}', '[{"a": {"b": 1, "b": 1}}]', "{", '"\\u0000"', "NaN"],
    ),
    "json": (['{"a": 1,  "a": 2}', _NULL], ["{", "["]),
    "mood": (["sad", "it's", _NULL], ["SAD", "", "mad"]),
    "inet": (["10.0.0.1", "::1/64", _NULL], ["10.0.0", "10.0.0.256", "localhost"]),
    "cidr": (["10.0.0.0/8"], ["10.0.0.1/8"]),
    "date": (
        ["2024-02-29", "0044-03-15 BC", _NULL],
        ["2023-02-29", "today", "02/03/2024", "2024-2-3", "2024-02-03T04:05:06"],
    ),
    "time": (
        ["12:30", "12:30:00.5", "24:00:00", "12:30:00.1234560000", _NULL],
        ["23:59:60", "now", "12:30:00.1234567", "12:30Z", "12:30 PM", "25:00"],
    ),
    "time(1)": (["12:30:00.5", "12:30:00.50"], ["12:30:00.55"]),
    "text[]": (['{a,"b c",NULL}', "{}", _NULL], ["a", "{a", '["a"]']),
    "mood[]": (["{ok,sad}"], ["{ok,mad}"]),
    "integer[]": (["{1,-2}"], ["{1.5}", "{2147483648}"]),
    "public.email": (["a@b", _NULL], ["ab", ""]),
    "member": ([_U, _NULL], ["x"]),
}


@pytest.mark.parametrize("declared", _FACTS)
def test_a_text_goes_where_it_is_valid_and_else_only_its_event_is_refused(
    home_dsn: str, declared: str
) -> None:
    """The detail names the column and its type; the other rows go in as they are."""
    taken, refused = _FACTS[declared]
    details = _put(_driver(home_dsn, "text", declared), [*refused, *taken])
    assert list(range(len(refused))) == sorted(details)
    shown = format_type(home_dsn, declared)
    assert all(f"column v, which is {shown}" in told for told in details.values())
    expected = query(
        home_dsn,
        f"SELECT v::{declared}::text FROM unnest(%s::text[]) WITH ORDINALITY "
        "AS given (v, n) ORDER BY n",
        taken,
    )
    assert expected == query(home_dsn, "SELECT v::text FROM t ORDER BY kafka_offset")


def format_type(dsn: str, declared: str) -> str:
    """Return a type's name as Postgres writes it."""
    ((name,),) = query(
        dsn,
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 't'::regclass AND attname = 'v'",
    )
    assert name, declared
    return str(name)


@pytest.mark.parametrize(
    ("declared", "taken", "refused"),
    [
        ("text[]", ['["a", null, ""]', "[]", None], ['["a", 1]', '"a"', "[[]]", "{}"]),
        (
            "integer[]",
            ["[1, 2]", "[[1], [2]]"],
            ["[1.5]", '["1"]', "[1, [2]]", "[1.0]"],
        ),
        ("numeric(4,1)[]", ["[1.5, 2]"], ["[1.55]", "[1000]"]),
        ("mood[]", ['["ok"]'], ['["mad"]']),
        ("json", ['{"a": 1.50}', None], []),
    ],
)
def test_a_json_array_becomes_an_array_if_it_can_be_read_back(
    home_dsn: str, declared: str, taken: list[Any], refused: list[Any]
) -> None:
    """What JSON makes of the array is the value that the event had."""
    details = _put(_driver(home_dsn, "jsonb", declared), [*refused, *taken])
    assert list(range(len(refused))) == sorted(details)
    back = query(home_dsn, "SELECT to_json(v)::text FROM t ORDER BY kafka_offset")
    assert [_read(one) for one in taken] == [_read(one) for (one,) in back]


def _read(text: str | None) -> object:
    return None if text is None else json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize(
    "declared", ["timestamptz", "numeric", "boolean", "interval", "numeric(4,1)[]"]
)
def test_a_text_does_not_go_where_the_same_text_has_several_meanings(
    home_dsn: str, declared: str
) -> None:
    """The start says so, before an event is read."""
    with pytest.raises(ConfigurationError) as raised:
        _driver(home_dsn, "text", declared)
    assert "TABLE_DIFFERS" == raised.value.code
    assert 'column "v" is of type' in raised.value.why


def test_citext_takes_each_text_as_it_is(home_dsn: str) -> None:
    """Its own cast from text is one that an INSERT uses."""
    (available,) = query(
        home_dsn, "SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'"
    )
    if available == (0,):
        pytest.skip("this server has no citext")
    execute(home_dsn, "CREATE EXTENSION citext")
    assert {} == _put(_driver(home_dsn, "text", "citext"), ["Ab", "", _NULL])
    assert [("Ab",), ("",), (None,)] == query(home_dsn, "SELECT v::text FROM t")


def test_nesting_that_no_stack_holds_costs_its_event_only(home_dsn: str) -> None:
    """Postgres answers with the state of a limit, not of a value."""
    deep = "[" * 100_000 + "]" * 100_000
    details = _put(_driver(home_dsn, "text", "jsonb"), ["[1]", deep])
    assert [1] == list(details)
    assert [("[1]",)] == query(home_dsn, "SELECT v::text FROM t")


def test_a_batch_with_many_misfits_takes_one_search(home_dsn: str) -> None:
    """Bisection alone would insert each range of rows around each of them."""
    values = [_U if number % 3 else f"bad {number}" for number in range(9_000)]
    details = _put(_driver(home_dsn, "text", "uuid"), values)
    assert list(range(0, 9_000, 3)) == sorted(details)
    assert [(6_000,)] == query(home_dsn, "SELECT count(*) FROM t")


def test_more_misfits_than_a_table_may_refuse_stop_the_driver(home_dsn: str) -> None:
    """They would turn the whole topic into dead letters."""
    with pytest.raises(ConfigurationError, match="TABLE_REFUSES_ROWS"):
        _put(_driver(home_dsn, "text", "uuid"), ["bad"] * 10_001)


def test_constraints_and_misfits_of_one_batch_are_found_together(
    home_dsn: str,
) -> None:
    """The search goes on among the rows whose values fit."""
    driver = _driver(home_dsn, "text", "uuid UNIQUE")
    details = _put(driver, [_U, "bad", _U, "worse", _U.replace("1", "2")])
    assert [1, 2, 3] == sorted(details)
    assert "23505" in details[2]


_PIECES = "0123456789abcdefABCDEF-+:./{}[]\",' \\ensuatrlIN"


def _damaged(rng: random.Random, text: str) -> str:
    """Return a text with up to two characters changed, added or dropped."""
    for _ in range(rng.randint(0, 2)):
        place = rng.randint(0, len(text))
        text = (
            text[:place]
            + rng.choice(_PIECES) * rng.randint(0, 1)
            + text[place + rng.randint(0, 1) :]
        )
    return text


def _json(rng: random.Random, depth: int = 0) -> str:
    kind = rng.randint(0, 5 if depth < 3 else 3)
    if kind == 4:
        inner = (_json(rng, depth + 1) for _ in range(rng.randint(0, 3)))
        return f"[{', '.join(inner)}]"
    if kind == 5:
        keys = (rng.choice("abcd") for _ in range(rng.randint(0, 3)))
        fields = (f'"{key}": {_json(rng, depth + 1)}' for key in keys)
        return f"{{{', '.join(fields)}}}"
    return rng.choice(["null", "true", '"x"', '"\\u0041"', "1.50", "-0", "1e3"])


def _moment(rng: random.Random) -> str:
    hour, minute, second = rng.randint(0, 24), rng.randint(0, 60), rng.randint(0, 60)
    digits = "".join(rng.choices("0059", k=rng.randint(0, 8)))
    fraction = f".{digits}" if digits else ""
    return f"{hour:02}:{minute:02}:{second:02}{fraction}"


_ELEMENTS = ("b", '\\"', "NULL")
_SOURCES: dict[str, Callable[[random.Random], str]] = {
    "uuid": lambda rng: str(UUID(int=rng.getrandbits(128))),
    "inet": lambda rng: ".".join(str(rng.randint(0, 260)) for _ in range(4)),
    "cidr": lambda rng: f"10.{rng.choice((0, 16))}.0.0/{rng.randint(4, 33)}",
    "mood": lambda rng: rng.choice(["sad", "ok", "it's"]),
    "mood[]": lambda rng: f"{{{rng.choice(['sad', 'ok'])},ok}}",
    "bigint[]": lambda rng: f"{{{rng.getrandbits(62)},{rng.getrandbits(64)}}}",
    "text[]": lambda rng: f'{{a,"{rng.choice(_ELEMENTS)}"}}',
    "public.email": lambda rng: rng.choice(["a@b", "ab"]),
    "jsonb": _json,
    "date": lambda rng: (
        f"{rng.randint(0, 9999):04}-{rng.randint(1, 12):02}-{rng.randint(1, 31):02}"
    ),
    "time": _moment,
    "time(2)": _moment,
}


@pytest.mark.parametrize("declared", _SOURCES)
def test_random_texts_fare_as_postgres_itself_says(
    home_dsn: str, declared: str
) -> None:
    """A value is taken if a cast takes it and changes nothing, and is that value."""
    seed = int(os.environ.get("TALLYWEIR_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    rng = random.Random(seed)
    source = _SOURCES[declared]
    values = [_damaged(rng, source(rng)) for _ in range(1_500)]
    expected = _cast_one_by_one(home_dsn, declared, values)
    details = _put(_driver_of(home_dsn, declared), values)
    stored: dict[int, str] = dict(
        query(home_dsn, "SELECT kafka_offset, v::text FROM t")
    )
    assert expected == stored
    assert set(range(len(values))) - set(expected) == set(details)


def _driver_of(dsn: str, declared: str) -> PostgresDriver:
    execute(dsn, f"CREATE TABLE public.t (v {declared}, {_POSITION})")
    return PostgresDriver(dsn=dsn, layout=layout_of(append_table("t", v="text")))


def _cast_one_by_one(dsn: str, declared: str, values: Sequence[str]) -> dict[int, str]:
    """Return what a plain cast makes of each value that it takes unchanged."""
    execute(dsn, *_TYPES)
    taken: dict[int, str] = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        for number, value in enumerate(values):
            try:
                row = connection.execute(
                    f"SELECT (%s::text)::{declared}::text", [value]
                ).fetchone()
            except psycopg.Error:
                continue
            assert row is not None
            if _says_one_value(declared, value, row[0]):
                taken[number] = row[0]
    return taken


def _says_one_value(declared: str, given: str, made: str) -> bool:
    """Tell, without Postgres, whether a cast has kept the value of a text."""
    if declared == "date":
        return given == made
    if declared == "jsonb":
        return not _repeats_keys(given)
    if declared.startswith("time"):
        if re.fullmatch(r"\d\d:\d\d(:[0-5]\d(\.\d+)?)?", given, re.ASCII) is None:
            return False
        return _seconds(given) == _seconds(made)
    return True


def _repeats_keys(text: str) -> bool:
    repeated: list[bool] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        repeated.append(len({key for key, _ in pairs}) < len(pairs))

    json.loads(text, object_pairs_hook=note)
    return any(repeated)


def _seconds(text: str) -> Decimal:
    parts = [Decimal(part) for part in text.split(":")]
    return sum((part * 60 ** (2 - n) for n, part in enumerate(parts)), Decimal())


@pytest.mark.parametrize(
    ("produced", "declared", "step", "most"),
    [
        ("numeric", "numeric(10,2)", Decimal("0.01"), Decimal("1e8")),
        ("numeric", "smallint", Decimal(1), Decimal(32768)),
        ("bigint", "smallint", Decimal(1), Decimal(32768)),
        ("bigint", "numeric(4,0)", Decimal(1), Decimal("1e4")),
    ],
)
def test_random_numbers_are_kept_digit_by_digit_or_refused(
    home_dsn: str, produced: str, declared: str, step: Decimal, most: Decimal
) -> None:
    """Python's decimals say which ones a narrower type holds."""
    seed = int(os.environ.get("TALLYWEIR_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    rng = random.Random(seed)
    scale = 3 if produced == "numeric" else 0
    values: list[Any] = [
        Decimal(
            rng.randint(-(10 ** rng.randint(1, 14)), 10 ** rng.randint(1, 14))
        ).scaleb(-rng.randint(0, scale))
        for _ in range(3_000)
    ]
    fits = {
        number: value
        for number, value in enumerate(values)
        if value % step == 0
        and -most <= value < most
        and (declared == "smallint" or value > -most)
    }
    if produced == "bigint":
        values = [int(value) for value in values]
    details = _put(_driver(home_dsn, produced, declared), values)
    assert fits == dict(query(home_dsn, "SELECT kafka_offset, v FROM t"))
    assert set(range(len(values))) - set(fits) == set(details)
