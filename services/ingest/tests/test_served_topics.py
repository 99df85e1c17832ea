"""Which pipeline files the service can take events for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.services.ingest.served_topics import read_served_topics
from tallyweir.services.ingest.tests.served import BY_FIELD
from tallyweir.services.process.refusals import RefusedError
from tallyweir.sinks.protocol.errors import ConfigurationError

_SOURCE = """
source:
  topic: {topic}
  schema: {schema}
  event_id: event_id
"""


def _file(folder: Path, name: str, *, topic: str, schema: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(_SOURCE.format(topic=topic, schema=schema))
    return path


def test_a_file_with_several_contracts_is_refused(tmp_path: Path) -> None:
    """A body does not say which it is of; a file for each topic does."""
    whole = _file(
        tmp_path, "whole", topic="[eu, us]", schema="[page_view.v1, order.v1]"
    )
    with pytest.raises(ConfigurationError) as caught:
        read_served_topics([whole])
    assert "INGEST_SEVERAL_CONTRACTS" == caught.value.code
    assert f"{whole} reads page_view.v1, order.v1." == caught.value.saw
    eu = _file(tmp_path, "eu", topic="eu", schema="page_view.v1")
    us = _file(tmp_path, "us", topic="us", schema="[order.v1]")
    served = read_served_topics([eu, _with_id(us)])
    assert {"eu": "page_view.v1", "us": "order.v1"} == {
        name: topic.contract.reference for name, topic in served.items()
    }


def _with_id(path: Path) -> Path:
    path.write_text(path.read_text().replace(": event_id", ": order_id"))
    return path


def test_two_files_agree_on_a_topic_or_are_refused(tmp_path: Path) -> None:
    """An event is written once, and both pipelines read it."""
    one = _file(tmp_path, "one", topic="[eu, us]", schema="page_view.v1")
    same = _file(tmp_path, "same", topic="us", schema="page_view.v1")
    assert {"eu", "us"} == read_served_topics([one, same]).keys()
    other = _with_id(_file(tmp_path, "other", topic="us", schema="order.v1"))
    with pytest.raises(ConfigurationError) as caught:
        read_served_topics([one, other])
    assert "TOPIC_CONTRADICTION" == caught.value.code
    assert "us as order.v1" in caught.value.saw


@pytest.mark.parametrize("value", [None, 1, 1.5, True, "x", []])
def test_an_event_is_an_object(value: object) -> None:
    """Nothing else is."""
    with pytest.raises(RefusedError, match="an event is an object") as caught:
        BY_FIELD.read_json(value)
    assert caught.value.code == "RECORD_MISFIT"
