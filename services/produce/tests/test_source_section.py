"""A producer reads three keys of a pipeline file, or says which is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.services.produce.source_section import (
    PIPELINE_BYTES_MAX,
    SourceSection,
    read_outbox_topics,
    read_source_section,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

PIPELINE = """
pipeline: departures
source:
  topic: flight-departures
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
outputs: [{append: {table: departures}}]
"""


def read(folder: Path, text: str) -> SourceSection:
    """The section of a text."""
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return read_source_section(path)


def test_the_three_keys_are_read_and_the_rest_is_left_alone(tmp_path: Path) -> None:
    """Other sections are for the job to judge."""
    assert read(tmp_path, PIPELINE) == SourceSection(
        topics=("flight-departures",),
        schemas=("flight_departure.v1",),
        event_id="event_id",
        pipeline="departures",
    )


def test_one_of_several_topics_is_chosen(tmp_path: Path) -> None:
    """Without a choice there must be only one, and another topic is refused."""
    text = PIPELINE.replace("topic: flight-departures", "topic: [eu, us]")
    section = read(tmp_path, text)
    assert ("eu", "us") == section.topics
    assert "us" == section.choose_topic("us")
    assert "flight-departures" == read(tmp_path, PIPELINE).choose_topic(None)
    for wanted in (None, "de"):
        with pytest.raises(ConfigurationError) as caught:
            section.choose_topic(wanted)
        assert "TOPIC_NOT_CHOSEN" == caught.value.code


def test_one_of_several_contracts_is_chosen(tmp_path: Path) -> None:
    """By the words of the file; a row says nothing of its contract."""
    text = PIPELINE.replace("flight_departure.v1", "[order.v1, payment.v1.avsc]")
    section = read(tmp_path, text)
    assert "payment.v1.avsc" == section.choose_schema("payment.v1.avsc")
    assert "flight_departure.v1" == read(tmp_path, PIPELINE).choose_schema(None)
    for wanted in (None, "payment.v1"):
        with pytest.raises(ConfigurationError) as caught:
            section.choose_schema(wanted)
        assert "SCHEMA_NOT_CHOSEN" == caught.value.code
        assert "order.v1, payment.v1.avsc" in caught.value.saw


def test_an_id_in_a_header_is_told_apart(tmp_path: Path) -> None:
    """``header:NAME`` names a header, anything else a field."""
    text = PIPELINE.replace("event_id: event_id", "event_id: header:ce_id")
    assert read(tmp_path, text).id_header == "ce_id"
    assert read(tmp_path, PIPELINE).id_header is None


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        (PIPELINE.replace("  topic", "  topics"), "source.topic is missing"),
        (PIPELINE.replace("flight-departures", "12"), "source.topic is 12"),
        (PIPELINE.replace("flight-departures", "[a, 12]"), "source.topic is 12"),
        (PIPELINE.replace("flight-departures", "[]"), "source.topic is []"),
        (PIPELINE.replace("flight-departures", ""), "source.topic is None"),
        (PIPELINE.replace("flight_departure.v1", "[a, 12]"), "source.schema is 12"),
        (PIPELINE.replace("event_id: e", "event_id: [e]  # "), "source.event_id is ["),
        ("pipeline: x", "no section named source"),
        ("", "no section named source"),
        ("- source", "no section named source"),
        ("source: [", "is not YAML"),
        ("source: !!python/object:os.system x", "is not YAML"),
        ("[" * 50_000, "is not YAML"),
        ("#" * (PIPELINE_BYTES_MAX + 1), "is larger than"),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, text: str, clause: str) -> None:
    """One clear error, whatever is in the file."""
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert clause in caught.value.saw
    assert caught.value.exit_code == 78


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The path in the error is the one that was given."""
    with pytest.raises(ConfigurationError, match=r"nothing\.yaml"):
        read_source_section(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("outputs", "topics"),
    [
        ("[{append: {table: a}}, {outbox: {topic: b, key: k}}]", ["b"]),
        ("[{outbox: 3}, 4, {outbox: {topic: 5}}]", []),
        ("nothing", []),
    ],
)
def test_the_topics_of_outboxes_are_found(
    tmp_path: Path, outputs: str, topics: list[str]
) -> None:
    """Who relays to them needs the right to; what is malformed a driver refuses."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"outputs: {outputs}\n")
    assert read_outbox_topics(path) == topics


_PYTHON = """
from datetime import timedelta
from tallyweir import Append, HeaderId, Outbox, Pipeline, Source

print("not for the reader")
pipeline = Pipeline(
    name="views",
    source=Source(
        topic=("eu", "us"),
        schema="page_view.v1",
        event_id=HeaderId(header="ce_id"),
        event_time="viewed_at",
        watermark_delay=timedelta(minutes=1),
    ),
    outputs=(Append(table="views"), Outbox(topic="sent", key="page")),
)
"""


def test_a_python_pipeline_is_read_like_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it prints is no part of what a command prints."""
    path = tmp_path / "views.py"
    path.write_text(_PYTHON)
    assert read_source_section(path) == SourceSection(
        topics=("eu", "us"),
        schemas=("page_view.v1",),
        event_id="header:ce_id",
        pipeline="views",
    )
    assert read_outbox_topics(path) == ["sent"]
    assert not capsys.readouterr().out


def test_a_python_pipeline_that_fails_is_told_with_its_own_error(
    tmp_path: Path,
) -> None:
    """And with the file."""
    path = tmp_path / "views.py"
    path.write_text("1 / 0\n")
    with pytest.raises(ConfigurationError) as caught:
        read_source_section(path)
    assert "PIPELINE_FILE_UNREADABLE" == caught.value.code
    assert "views.py:1 in <module>: 1 / 0" in caught.value.saw


@pytest.mark.parametrize(
    ("event_id", "key", "field"),
    [
        ("event_id", "", "event_id"),
        ("key", "", "key"),
        ("key", "  key: {format: text}\n", None),
        ("key.id", "  key: {format: json, fields: {id: text}}\n", None),
        ("[event_id, key]", "  key: {format: text}\n", None),
        ("header:id", "", None),
        ("position", "", None),
    ],
)
def test_an_id_may_be_in_no_field(
    tmp_path: Path, event_id: str, key: str, field: str | None
) -> None:
    """Then a producer must say which field of a row tells it from others."""
    text = PIPELINE.replace("  event_id: event_id\n", f"  event_id: {event_id}\n{key}")
    assert read(tmp_path, text).id_field == field
