"""Which rows of a task are kept, and what is kept of them."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.pipeline.redaction import find_redaction
from tallyweir.sinks.protocol.samples import StepSample
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.sampling import (
    ROW_CHARS_MAX,
    VALUE_CHARS_MAX,
    fit,
    json_text,
    sample_events,
    sample_staged,
    sampling_of,
    scalar_text,
    value_text,
)
from tallyweir.spark_jobs.task.tests import sampled_people as people


def _kept(
    events: ClassifiedEvents, *, undecodable: tuple[int, ...] = ()
) -> dict[str, StepSample]:
    pipeline = people.pipeline(samples=2, redact=())
    redaction = find_redaction(pipeline, people.contracts(), people.ADDED)
    sampling = sampling_of(pipeline, people.contracts(), redaction, people.ADDED)
    assert sampling is not None
    is_event = np.ones(len(events.classes), dtype=np.bool_)
    is_event[list(undecodable)] = False
    found = sample_events(sampling, events, is_event, people.contracts(), people.PLACES)
    return {one.step: one for one in found.steps}


def _offsets(kept: dict[str, StepSample]) -> dict[str, list[int | None]]:
    return {step: [row.offset for row in one.rows] for step, one in kept.items()}


def test_what_could_not_be_computed_is_no_sample_of_that_step() -> None:
    """What became of the others in the end does not matter to it."""
    events = people.events(3)
    told = pa.array([None, None, "The computed column lower has no value."])
    table = events.table.append_column(named.UNCOMPUTED, told)
    events = replace(events, table=table)
    events.mark_dead(1, "FREE", "a rule")
    events.mark_dead(2, "EXPRESSION_FAILED", told[2].as_py())
    found = _offsets(_kept(events))
    assert [1, 0] == found["compute"]
    assert [2, 1] == found["decode"] == found["dead"]


def test_each_step_keeps_the_last_events_that_were_in_it() -> None:
    """By what became of them in the end; the newest first."""
    events = people.events(7)
    events.classes[:] = [
        EventClass.COMMITTED,
        EventClass.LATE,
        EventClass.COMMITTED,
        EventClass.DUPLICATE,
        EventClass.EXPIRED,
        EventClass.FILTERED,
        EventClass.COMMITTED,
    ]
    events.mark_dead(6, "BAD_MAGIC", "the first byte is <person:6>")
    kept = _kept(people.undecodable(events, [6]), undecodable=(6,))
    assert _offsets(kept) == {
        "decode": [5, 4],
        "compute": [5, 4],
        "validate": [4, 3],
        "dead": [6],
        "expired": [4],
        "filtered": [5],
        "deduplicate": [2, 1],
        "duplicate": [3],
        "enrich": [2, 1],
        "transform": [2, 1],
        "predict": [2, 1],
        "late": [1],
    }
    (dead,) = kept["dead"].rows
    # Of what does not decode nobody knows what it says; why it is dead may quote it.
    assert (dead.reason, dead.fields) == ("BAD_MAGIC", ())
    assert dead.place is not None
    assert (dead.place.topic, dead.place.partition) == ("people", 0)


def test_an_erased_event_is_in_no_sample() -> None:
    """Whatever else was to become of it."""
    events = people.events(3)
    events.erased = np.array([2])
    events.classes[2] = EventClass.FILTERED
    kept = _kept(events)
    assert "filtered" not in kept
    assert "<person:2>" not in json.dumps(
        [one.rows for one in kept.values()], default=str
    )
    assert kept["decode"].rows[0].offset == 1


def test_nothing_is_taken_where_nobody_asks() -> None:
    """Which is so unless a pipeline file says otherwise."""
    nobody = people.pipeline(samples=0, redact=())
    redaction = find_redaction(nobody, people.contracts(), people.ADDED)
    assert sampling_of(nobody, people.contracts(), redaction, ()) is None
    assert () == sample_staged(
        None, people.LAYOUT, "output_0", people.staged(1)["output_0"]
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("", ""),
        ("a\x00b", "a\ufffdb"),
        ("\ud800", "?"),
        (True, "true"),
        (Decimal("1.50"), "1.50"),
        (dt.date(2024, 5, 1), "2024-05-01"),
        (b"\x00\xff", "\\x00ff"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ("x" * VALUE_CHARS_MAX, "x" * VALUE_CHARS_MAX),
        ("x" * 1_000, "x" * VALUE_CHARS_MAX + "… (1000 characters)"),
        (b"\x01" * 101, "\\x" + "01" * 100 + "… (101 bytes)"),
    ],
)
def test_a_value_becomes_text_that_postgres_keeps(
    value: object, text: str | None
) -> None:
    """Cut where it is long, with what it was."""
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array([2**62], pa.timestamp("us", "UTC")), str(2**62)),
        (pa.array([2**30], pa.date32()), str(2**30)),
        (pa.array([b"\xff"], pa.binary()).view(pa.string()), "(cannot be shown)"),
        (pa.array([None], pa.string()), None),
    ],
)
def test_a_value_that_python_cannot_hold_stops_no_batch(
    array: pa.Array, text: str | None
) -> None:
    """A decoded event may have a year that only Postgres knows."""
    assert scalar_text(array[0]) == text


def test_a_row_has_room_for_so_much_and_counts_the_rest() -> None:
    """However many fields a contract has."""
    wide = [(f"f{number}", "x" * 100) for number in range(100)]
    kept, left_out = fit(wide)
    assert len(kept) + left_out == 100
    assert sum(len(name) + len(text or "") for name, text in kept) <= ROW_CHARS_MAX


_json = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


def _has(value: object, path: tuple[str, ...]) -> bool:
    """Tell whether names are found one below the other, through lists and maps."""
    if isinstance(value, list):
        return any(_has(one, path) for one in value)
    if not isinstance(value, dict):
        return False
    if path[0] in value and (len(path) == 1 or _has(value[path[0]], path[1:])):
        return True
    return any(_has(one, path) for one in value.values())


@given(value=_json, path=st.lists(st.sampled_from("abc"), min_size=1, max_size=3))
def test_a_hidden_part_is_nowhere_below(value: object, path: list[str]) -> None:
    """Whether a name is a record's or a map's key is not told by JSON."""
    text = json_text(json.dumps(value), [path])
    assert text is not None
    if not text.endswith("characters)"):
        assert not _has(json.loads(text), tuple(path))
    assert json_text("{no json", [path]) == "(cannot be shown)"
    assert json_text(None, [path]) is None
