"""The fields that a pipeline names are read, and all their problems are listed."""

from __future__ import annotations

import pytest

from tallyweir.schemas.contract import list_fields
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.formats.json.json_fields import read_fields


@pytest.mark.parametrize(
    ("kind", "described"),
    [
        ("text", "string"),
        ("boolean", "boolean"),
        ("smallint", "smallint"),
        ("integer", "int"),
        ("bigint", "long"),
        ("real", "float"),
        ("double precision", "double"),
        ("numeric(12,2)", "decimal(12,2)"),
        ("numeric( 12 , 2 )", "decimal(12,2)"),
        ("numeric(9)", "decimal(9,0)"),
        ("numeric", "numeric"),
        ("date", "date"),
        ("timestamp", "local-timestamp-micros"),
        ("timestamp epoch us", "local-timestamp-micros"),
        ("timestamptz", "timestamp-micros"),
        ("TIMESTAMPTZ EPOCH MS", "timestamp-micros"),
        ("timestamptz at 'Europe/Berlin' truncated", "timestamp-micros"),
        ("uuid", "uuid"),
        ("jsonb", "json"),
        ("bytea", "bytes"),
    ],
)
def test_each_type_becomes_a_column(kind: str, described: str) -> None:
    """A field may lack a value, unless its type says ``not null``."""
    schema = read_fields({"a": kind, "b": f"{kind} not null"})
    first, second = list_fields(schema.tree)
    assert (first.type, first.nullable) == (described, True)
    assert (second.type, second.nullable) == (described, False)


def test_a_path_gives_its_column_a_name() -> None:
    """Its names are joined, unless the type says otherwise."""
    schema = read_fields(
        {
            "customer.id": "bigint",
            '"geo.point".lat': "real as latitude",
            "@timestamp": "timestamptz as at_time not null",
        },
        unknown="rest",
    )
    names = [one.name for one in schema.tree.fields]
    assert names == ["customer_id", "latitude", "at_time", "rest"]


def test_equal_texts_mean_the_same() -> None:
    """Spaces and case do not count; the order of the columns and the types do."""
    text = read_fields({"a": "numeric(4,1) not null", "b": "text"}).text
    assert text == read_fields({"a": "NUMERIC (4, 1)  NOT NULL", "b": "text"}).text
    others = [
        read_fields({"b": "text", "a": "numeric(4,1) not null"}),
        read_fields({"a": "numeric(4,1)", "b": "text"}),
        read_fields({"a": "numeric(4,1) not null", "b": "text"}, unknown="rest"),
    ]
    assert text not in [one.text for one in others]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"a": "varchar"}, "Write text."),
        ({"a": "varchar(20)"}, "Write text."),
        ({"a": "intger"}, "Write integer."),
        ({"a": "timestampz"}, "Write timestamptz."),
        ({"a": "decimal(10,2)"}, "Write numeric(p,s)."),
        ({"a": "decimal"}, "Write numeric(p,s)."),
        ({"a": "zebra"}, "Write one of text,"),
        ({"a": 5}, "A type is a text."),
        ({"a": "numeric(39,2)"}, "1 to 38 digits"),
        ({"a": "numeric(4,5)"}, "1 to 38 digits"),
        ({"a": "numeric(4,-1)"}, "1 to 38 digits"),
        ({"a": "text default 5"}, "type 'text default 5'"),
        ({"a": "text not null nonsense"}, "'nonsense' cannot follow there"),
        ({"a": "text not null not null"}, "'not null' cannot follow there"),
        ({"a": "text epoch ms"}, "epoch follows text"),
        ({"a": "bigint truncated"}, "truncated follows bigint"),
        ({"a": "timestamptz epoch minutes"}, "Write epoch s, epoch ms"),
        ({"a": "timestamptz at 'Europe/Berln'"}, "Write 'Europe/Berlin'."),
        ({"a": "timestamptz at '../etc/passwd'"}, "knows no such time zone"),
        ({"a": "timestamp at 'Europe/Berlin'"}, "Leave it out"),
        ({"a": "timestamptz epoch s at 'Europe/Berlin'"}, "Leave it out"),
        ({"a.b": "text", "a_b": "text"}, "both give the column a_b"),
        ({"Ab": "text", "aB": "text"}, "both give the column aB"),
        ({"a": "text", "a.b": "text"}, "a.b lies inside it"),
        ({"a.b.c": "text", "a": "jsonb"}, "a.b.c lies inside it"),
        ({"user-agent": "text"}, "Add as NAME"),
        ({"1st": "text"}, "Add as NAME"),
        ({"a": "text as 1st"}, "gives the column '1st'"),
        ({"x" * 64: "text"}, "up to 63"),
        ({"": "text"}, "A path is names joined by dots."),
        ({"a..b": "text"}, "A path is names joined by dots."),
        ({"a.": "text"}, "A path is names joined by dots."),
        ({'"a': "text"}, "A path is names joined by dots."),
        ({3: "text"}, "A path is names joined by dots."),
        ({}, "Name at least one field"),
    ],
)
def test_a_problem_is_told_with_its_fix(fields: dict[str, str], said: str) -> None:
    """Each of them is a ``ContractError``."""
    with pytest.raises(ContractError) as caught:
        read_fields(fields)
    assert said in str(caught.value)
    assert len(caught.value.faults) == 1


def test_a_column_called_rest_cannot_meet_the_rest() -> None:
    """The rest is a column like any other."""
    with pytest.raises(ContractError, match="both give the column rest"):
        read_fields({"rest": "text"}, unknown="rest")


def test_what_becomes_of_unknown_fields_is_one_of_three() -> None:
    """Another word is told with the nearest one."""
    with pytest.raises(ContractError, match="Write refuse"):
        read_fields({"a": "text"}, unknown="refused")


def test_all_problems_are_in_one_error() -> None:
    """Whoever corrects a file does so once."""
    fields = {
        "a": "varchar",
        "a.b": "numeric(50,2)",
        "b..c": "texd",
        "x-y": "text",
        "t": "timestamptz epoch weeks at 'Mars/Base'",
    }
    with pytest.raises(ContractError) as caught:
        read_fields(fields, unknown="drop")
    # "b..c" and "t" have several.
    assert len(caught.value.faults) == 9
