"""Databases beside the home: how they are declared, and how an output is split."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.contract import ContractField, load_contract
from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Output,
    Pipeline,
    PipelineError,
    Window,
    check_columns,
    definition_hash,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.outputs.window import Fixed
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES, SOURCE

_FIELDS = load_contract("flight_departure.v1").fields
_FILE = """\
pipeline: p
source:
  topic: t
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
databases:
  billing: host=b.example dbname=billing user=tallyweir
  archive:
outputs:
  - append: {table: a, database: billing, branches: 4}
  - append: {table: b, database: [archive, home, billing], shard_by: [carrier]}
  - window:
      table: w
      fixed: 1 hour
      by: [origin, carrier]
      database: [billing, archive]
      shard_by: [origin]
      aggregate:
        flights: count(*)
"""


def _pipeline(*outputs: Output, **databases: str) -> Pipeline:
    return Pipeline(name="p", source=SOURCE, outputs=outputs, databases=databases)


def _window(
    databases: tuple[str, ...] = ("home",), shard_by: tuple[str, ...] = ()
) -> Output:
    return Window(
        table="w",
        windows=Fixed(size=timedelta(hours=1)),
        by=("origin",),
        aggregates=(Aggregate(column="n", function=AggregateFunction.COUNT),),
        databases=databases,
        shard_by=shard_by,
    )


def _load(folder: Path, text: str) -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(text)
    return load_pipeline(path)


def test_a_file_says_where_each_output_goes(tmp_path: Path) -> None:
    """A name or a list, in the user's order; an empty place is the environment's."""
    pipeline = _load(tmp_path, _FILE)
    billing = "host=b.example dbname=billing user=tallyweir"
    assert {"billing": billing, "archive": ""} == pipeline.databases
    append, sharded, window = pipeline.outputs
    assert isinstance(append, Append)
    assert (("billing",), (), 4) == (append.databases, append.shard_by, append.branches)
    assert (("archive", "home", "billing"), ("carrier",)) == (
        sharded.databases,
        sharded.shard_by,
    )
    assert (("billing", "archive"), ("origin",)) == (window.databases, window.shard_by)


def test_outputs_are_at_home_unless_they_say_otherwise() -> None:
    """Nothing changes for who has one database."""
    for output in DEPARTURES.outputs:
        assert (("home",), ()) == (output.databases, output.shard_by)
    assert {} == DEPARTURES.wanted_databases


def test_a_database_that_an_output_names_is_wanted_also_undeclared() -> None:
    """The environment may know it; the home is no database beside the home."""
    pipeline = _pipeline(
        Append(table="a", databases=("home", "b"), shard_by=("carrier",)), c="x=1"
    )
    assert {"b": "", "c": "x=1"} == pipeline.wanted_databases


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ("databases:", "databasses:", 8, "PIPELINE_UNKNOWN_KEY"),
        ("database: billing", "databases: billing", 12, "PIPELINE_UNKNOWN_KEY"),
        ("database: billing", "database: 5", 12, "PIPELINE_VALUE"),
        ("database: billing", "database: Billing", 12, "PIPELINE_NAME"),
        ("database: billing", "database: []", 12, "PIPELINE_VALUE"),
        ("branches: 4", "branches: four", 12, "PIPELINE_VALUE"),
        ("branches: 4", "branches: 0", 12, "PIPELINE_VALUE"),
        ("branches: 4", "branches: 17", 12, "PIPELINE_VALUE"),
        ("branches: 4", "branches: 0x4", 12, "PIPELINE_VALUE"),
        ("branches: 4", "shard_by: [carrier]", 12, "PIPELINE_VALUE"),
        ("home, billing", "home, archive", 13, "PIPELINE_DUPLICATE_NAME"),
        (", shard_by: [carrier]", "", 13, "PIPELINE_MISSING_KEY"),
        ("[carrier]}", "[carrier, carrier]}", 13, "PIPELINE_DUPLICATE_NAME"),
        ("[carrier]}", "[carier]}", 13, "PIPELINE_UNKNOWN_COLUMN"),
        ("[carrier]}", "[carrier], branches: 2}", 13, "PIPELINE_VALUE"),
        ("shard_by: [origin]", "shard_by: [flight]", 19, "PIPELINE_UNKNOWN_COLUMN"),
        ("shard_by: [origin]", "branches: 2", 19, "PIPELINE_UNKNOWN_KEY"),
        ("  archive:", "  home:", 10, "PIPELINE_RESERVED_NAME"),
        ("  archive:", "  Archive:", 10, "PIPELINE_NAME"),
        ("  archive:", f"  {'a' * 32}:", 10, "PIPELINE_NAME"),
        ("  archive:", "  archive: [1]", 10, "PIPELINE_VALUE"),
        ("  archive:", "  archive: 5432", 10, "PIPELINE_VALUE"),
        ("  archive:", "  archive: somewhere", 10, "PIPELINE_VALUE"),
    ],
)
def test_a_mistake_is_found_on_its_line(
    tmp_path: Path, old: str, new: str, line: int, code: str
) -> None:
    """One edit to a valid file gives its own code and line."""
    assert _FILE.count(old) == 1, "the edit must be unambiguous"
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, _FILE.replace(old, new))
    found = zip(caught.value.places, caught.value.problems, strict=True)
    assert (f"{tmp_path}/p.yaml:{line}", code) in [
        (place, problem.code) for place, problem in found
    ]


@pytest.mark.parametrize(
    "conninfo",
    [
        "host=h password=hush-hush",
        "host=h PASSWORD = hush-hush dbname=d",
        "password='hush-hush and more'",
        r"password=hush-hush\ and\ more host=h",
        "host='a b' sslpassword=hush-hush",
        "host=h scram_client_key=hush-hush",
        "host=h\npassword=hush-hush",
        "postgresql://u:hush-hush@h/d",
        "postgres://u:hush-hush@h:5432,h2:5432/d",
        "postgresql://u:hush@hush-hush@h/d",
        "postgresql://u:hush/hush-hush@h/d",
        "postgresql://u@v:hush-hush@h/d",
        "postgresql://u@h/d?password=hush-hush",
        "postgresql://u@h/d?PASSWORD=hush-hush",
        "postgresql://u@h/d?sslmode=require&pass%77ord=hush-hush",
        "postgresql:///d?host=h&sslpassword=hush-hush",
    ],
)
def test_a_pipeline_holds_no_secret_and_shows_none(
    tmp_path: Path, conninfo: str
) -> None:
    """Files are shared; whatever may be a password is refused without repeating it."""
    text = _FILE.replace("  archive:", f"  archive: {json.dumps(conninfo)}")
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, text)
    assert "PIPELINE_SECRET" == caught.value.code
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize(
    "databases",
    [
        "postgresql://u:hush-hush@h/d",
        "[postgresql://u:hush-hush@h/d]",
        '{a: "host=h password"}',
        '{a: "host=h password= = hush-hush"}',
        '{a: "password=\'hush-hush"}',
        '{a: "postgresql://[u:hush-hush@h/d"}',
    ],
)
def test_what_cannot_be_read_is_not_repeated(tmp_path: Path, databases: str) -> None:
    """A connection string in the wrong place, or cut off, may hold a secret as well."""
    text = "databases: " + databases + _FILE[_FILE.index("\noutputs:") :]
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, _FILE[: _FILE.index("databases:")] + text)
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize(
    "conninfo",
    [
        "",
        "service=billing",
        "host=h port=5433 dbname=d user=u passfile=/etc/tallyweir/pgpass",
        "host = h  dbname = 'a \\' b' ",
        "postgresql://u@h:5432/d?sslmode=verify-full&application_name=x",
        "postgresql:///d?host=/var/run/postgresql",
        "postgresql://[::1]:5432/d",
    ],
)
def test_a_place_without_a_secret_is_accepted(conninfo: str) -> None:
    """A password is found by libpq itself: its passfile is named, not copied."""
    assert {"b": conninfo} == _pipeline(Append(table="a"), b=conninfo).databases


def test_a_window_is_spread_by_what_groups_it() -> None:
    """Else the events of one group would lie in several databases."""
    with pytest.raises(PipelineError) as caught:
        _window(databases=("a", "b"), shard_by=("carrier",))
    assert "PIPELINE_UNKNOWN_COLUMN" == caught.value.code
    assert ("Window.shard_by[0]",) == caught.value.places


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ("airline", "PIPELINE_UNKNOWN_COLUMN"),
        ("tags", "PIPELINE_COLUMN_TYPE"),
        ("legs", "PIPELINE_COLUMN_TYPE"),
    ],
)
def test_rows_are_spread_by_simple_fields_of_the_event_only(
    column: str, code: str
) -> None:
    """A looked-up value changes with its table, and a map has no hash."""
    output = Append(table="a", databases=("b", "c"), shard_by=(column,))
    pipeline = dataclasses.replace(DEPARTURES, outputs=(output,))
    nested = (
        ContractField(name="tags", type="map", nullable=False),
        ContractField(name="legs", type="array", nullable=False),
    )
    with pytest.raises(PipelineError) as caught:
        check_columns(pipeline, (*_FIELDS, *nested))
    assert [code] == [problem.code for problem in caught.value.problems]


def test_where_a_database_is_does_not_make_another_pipeline() -> None:
    """A database that moves to another host leaves the definition as it is."""
    output = Append(table="a", databases=("b",))
    here, there = _pipeline(output, b="host=here"), _pipeline(output, b="host=there")
    assert here == there
    assert definition_hash(here) == definition_hash(there)
    assert "host=here" not in json.dumps(pipeline_definition_json(here))


@given(
    databases=st.sampled_from([("home",), ("b",), ("b", "home"), ("home", "b")]),
    branches=st.integers(1, 16),
)
def test_the_place_of_an_output_comes_back_from_the_ledger(
    databases: tuple[str, ...], branches: int
) -> None:
    """The order of databases is kept: it says which of them a row is in."""
    shard_by = ("origin",) if len(databases) > 1 else ()
    pipeline = _pipeline(
        Append(
            table="a",
            databases=databases,
            shard_by=shard_by,
            branches=1 if shard_by else branches,
        ),
        _window(databases=databases, shard_by=shard_by),
    )
    stored = json.dumps(pipeline_definition_json(pipeline), sort_keys=True)
    assert pipeline == from_json(json.loads(stored))


def test_every_change_of_place_changes_the_hash() -> None:
    """Rows that lie elsewhere are not the same run."""
    places = [
        Append(table="a"),
        Append(table="a", branches=2),
        Append(table="a", databases=("b",)),
        Append(table="a", databases=("b", "c"), shard_by=("origin",)),
        Append(table="a", databases=("c", "b"), shard_by=("origin",)),
        Append(table="a", databases=("b", "c"), shard_by=("carrier",)),
    ]
    hashes = {definition_hash(_pipeline(place)) for place in places}
    assert len(places) == len(hashes)
