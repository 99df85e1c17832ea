"""What the audit commands do before and after they ask the servers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tallyweir.services.cli.arguments import pipeline_databases, pipeline_name
from tallyweir.services.cli.audit.status import status_json
from tallyweir.services.cli.audit.why import payload_reader
from tallyweir.services.kafka.source_lag import lags_of
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.services.operate.pipeline_json import line_to_add
from tallyweir.sinks.postgres.audit import (
    AuditedSource,
    PartitionClockState,
    PartitionStatus,
    Status,
    Totals,
)
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition, StoredPosition
from tallyweir.sinks.seen_ids.event_hashes import fingerprint
from tallyweir.sinks.seen_ids.id_hash import to_bytes

_KEY = bytes(range(16))
_READ = TopicPartition("orders", 0)
_NEW = TopicPartition("orders", 1)


def _status() -> Status:
    return Status(
        pipeline="p",
        guarantee=Guarantee.EXACTLY_ONCE,
        observed_at=datetime(2026, 5, 1, tzinfo=UTC),
        watermark=None,
        newest_event_time=None,
        partitions=(
            PartitionStatus(
                position=_READ,
                stored=StoredPosition(topic_id="id", next_offset=7),
                event_time_max=None,
                watermark=None,
                clock=PartitionClockState.AWAITED,
            ),
        ),
        last_batch=None,
        moved_at=None,
        last_sequence=0,
        visible_through=0,
        minute_rate=0.0,
        batches_rate=None,
        driver=None,
        totals=Totals(
            read=0,
            committed=0,
            duplicate=0,
            dead=0,
            dead_by_reason={},
            late=0,
            expired=0,
            filtered=0,
            batches=0,
            drivers=0,
        ),
        windows=(),
        catalog_ids=None,
        pause=None,
        drain=None,
        databases=(),
    )


def _position(start: int, end: int) -> BrokerPosition:
    return BrokerPosition(topic_id="id", log_start_offset=start, log_end_offset=end)


def test_a_name_is_taken_as_it_is() -> None:
    """A pipeline whose file is not at hand can still be looked at."""
    assert pipeline_name("departures") == "departures"


def test_a_file_gives_its_pipelines_name_whatever_else_is_wrong_in_it(
    tmp_path: Path,
) -> None:
    """Only the one key is read."""
    file = tmp_path / "any.yaml"
    file.write_text("pipeline: departures\nsauce: {topic: typo}\n")
    assert pipeline_name(str(file)) == "departures"


@pytest.mark.parametrize("content", ["", "- a list", "pipeline: 7", "a: [", "\x00"])
def test_a_file_without_a_name_is_a_configuration_error(
    tmp_path: Path, content: str
) -> None:
    """The message names the file."""
    file = tmp_path / "any.yaml"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"any\.yaml"):
        pipeline_name(str(file))


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    """So is one that is not there at all."""
    with pytest.raises(ConfigurationError, match="PIPELINE_FILE_UNREADABLE"):
        pipeline_name(str(tmp_path / "gone.yml"))


def test_a_partition_that_was_not_read_yet_lags_by_all_that_it_holds() -> None:
    """From the log's start, because what was deleted cannot be read any more."""
    lags = lags_of(
        _status().next_offsets, {_READ: _position(0, 9), _NEW: _position(3, 10)}
    )
    assert lags == {_READ: 2, _NEW: 7}


def test_a_lag_that_is_unknown_is_null_and_not_zero() -> None:
    """A broker that is down must not look like a pipeline that caught up."""
    shown = status_json(_status(), lags_of(_status().next_offsets, None))
    assert shown["lag"] is None
    assert shown["state"] == "STOPPED"


def test_an_id_that_looks_like_a_number_is_probed_as_both() -> None:
    """The catalog files text and numbers apart."""
    assert len(set(fingerprints_of(_KEY, "42", None))) == 3
    assert len(fingerprints_of(_KEY, "UA-42", None)) == 2
    assert len(fingerprints_of(_KEY, str(2**63), None)) == 2


def test_a_pair_is_probed_as_stage_tasks_file_it() -> None:
    """The source comes first; an event that came without one has an empty one."""

    def filed(source: str) -> bytes:
        parts = [pa.array([source]), pa.array(["42"])]
        return to_bytes(fingerprint(parts, _KEY))

    assert fingerprints_of(_KEY, "42", "/shop") == (filed("/shop"),)
    assert filed("") in fingerprints_of(_KEY, "42", None)


def test_databases_come_from_the_file_and_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment knows better; what a file leaves open is not known by it."""
    file = tmp_path / "any.yaml"
    file.write_text("databases: {one: host=a, two: host=b, three: , 4: host=c}\n")
    monkeypatch.setenv("TALLYWEIR_DATABASES", '{"two": "host=d"}')
    assert pipeline_databases(str(file)) == {"one": "host=a", "two": "host=d"}
    assert pipeline_databases("any") == {"two": "host=d"}


def _reading(schema: str) -> AuditedSource:
    return AuditedSource(topics=("t",), schemas=(schema,))


def test_a_row_of_a_file_is_shown_as_it_stands_there() -> None:
    """Unlike bytes that only happen to be UTF-8, it can be printed."""
    read = payload_reader(_reading("flight_departure.v1"), "p")
    assert read("o3,Köln,0".encode()) == "o3,Köln,0"
    assert read(b"o3\x00") is None


def test_a_payload_that_does_not_decode_is_left_to_its_hex() -> None:
    """Neither a broken payload nor a contract that is not at hand stops why."""
    assert payload_reader(_reading("flight_departure.v1"), "p")(b"\xff\xad") is None
    assert payload_reader(_reading("not_there.v1"), "p")(b"\x00") is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("customer.coupon", "customer.coupon: jsonb"),
        ("a#b", "a#b: jsonb"),
        ("customer.#7", "number 7 of the .proto file's message"),
    ],
)
def test_a_field_that_nobody_named_comes_with_what_reads_it(
    path: str, expected: str
) -> None:
    """A message of Protobuf holds numbers, not names."""
    assert line_to_add(path) == expected
