"""A value format is one module: nothing else must know of it to serve it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.line_format import Lines
from integration_tests.harness.readings import NOON
from integration_tests.harness.watched_driver import WatchedDriver
from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.formats.known_formats import FORMATS
from tallyweir.services.ingest.event_forms import read_events
from tallyweir.services.ingest.request import RequestHead
from tallyweir.services.ingest.scoped_ids import NamedEvent
from tallyweir.services.ingest.served_topics import read_served_topics
from tallyweir.services.operate.redrive.letter_report import letter_json
from tallyweir.services.produce.emit import emit, plan_faults
from tallyweir.services.produce.faults import FaultRates
from tallyweir.services.produce.producer import EventProducer
from tallyweir.sinks.postgres.audit import read_letter
from tallyweir.sinks.postgres.server.connection import connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_FIELDS = "event_id string\nat timestamp-micros\namount int\nsite string?\n"
_PIPELINE = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.lines
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    validate:
      NEGATIVE_AMOUNT: "amount >= 0"
    outputs:
      - append: {{table: readings}}
"""
_DRIVER = "integration_tests.harness.line_driver"


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, Lines.suffix, Lines())


class _World(DriverWorld):
    """A pipeline over lines; its drivers know them."""

    def __init__(self, directory: Path, kafka_bootstrap: str, home_dsn: str) -> None:
        super().__init__(directory, kafka_bootstrap, home_dsn)
        (directory / "reading.v1.lines").write_text(_FIELDS)
        self.contract = load_contract("reading.v1.lines", directory)
        self.write_pipeline(_PIPELINE)

    def run(self, *arguments: str) -> None:
        """Run a driver until it has read the topic, or do a batch run."""
        with WatchedDriver(
            self.pipeline_file,
            kafka_bootstrap=self.topic.bootstrap,
            home_dsn=self.home_dsn,
            state_directory=self.directory / "state",
            module=_DRIVER,
            once=not arguments,
            arguments=arguments,
        ) as driver:
            assert driver.wait() == 0, driver.text

    def shown(self, query: str) -> dict[str, Any]:
        """Return what ``dead-letters show`` makes of the payload of one letter."""
        ((partition, offset),) = self.fetch(query)
        with connect(self.home_dsn, application_name="test") as home:
            letter = read_letter(
                home,
                "readings",
                topic=self.topic.name,
                partition=partition,
                offset=offset,
            )
        found: dict[str, Any] = letter_json(letter, None, self.pipeline_file)["decoded"]
        return found

    def readings(self) -> list[tuple[object, ...]]:
        """Return the rows of the table."""
        return self.fetch("SELECT event_id, at, amount, site FROM readings ORDER BY 1")


def test_requests_may_hold_values_of_a_new_format(tmp_path: Path) -> None:
    """The body is what Kafka gets, as nothing in it names the contract."""
    (tmp_path / "reading.v1.lines").write_text(_FIELDS)
    file = tmp_path / "readings.yaml"
    file.write_text(textwrap.dedent(_PIPELINE).format(topic="readings"))
    head = RequestHead.read([(b"content-type", Lines.media_type.encode())])
    topic = read_served_topics([file])["readings"]
    body = b"a|2024-05-01 12:00:00+00:00|1|"
    (event,) = read_events(topic, "", head, head.media_type(), body).events
    assert isinstance(event, NamedEvent)
    assert event.payload == body


def test_contracts_that_no_payload_names_are_not_read_together(tmp_path: Path) -> None:
    """Nothing would say which of them wrote a line."""
    for name in ("a.v1.lines", "b.v1.lines"):
        (tmp_path / name).write_text(_FIELDS)
    with pytest.raises(ContractError, match="CONTRACTS_DIFFER"):
        load_event_contracts(["a.v1.lines", "b.v1.lines"], tmp_path)


def _records(count: int, **fields: object) -> Iterator[dict[str, object]]:
    for number in range(count):
        record = {"event_id": f"e{number:03}", "at": NOON, "amount": number}
        yield {**record, "site": None if number % 2 else "roof", **fields}


def test_events_of_a_new_format_are_emitted_judged_and_stored(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Broken payloads are dead letters, which are shown as far as they go."""
    world = _World(tmp_path, kafka_bootstrap, home_dsn)
    plan = plan_faults(
        contract=world.contract,
        event_id="event_id",
        partitions=2,
        rates=FaultRates(duplicates=0.2, poison=0.2, invalid=("amount", -1)),
    )
    report = emit(
        EventProducer(kafka_bootstrap),
        topic=world.topic.name,
        plan=plan,
        records=_records(200),
    )
    poison = report.expected.poison
    assert min(poison.values()) > 0
    world.run()
    assert world.readings() == [tuple(one.values()) for one in _records(200)]
    found = dict(
        world.fetch("SELECT reason, count(*) FROM tallyweir.dead_letter GROUP BY 1")
    )
    assert found == {"MALFORMED": poison["cut"], "NEGATIVE_AMOUNT": poison["invalid"]}
    world.assert_verified()
    broken = world.shown(
        "SELECT kafka_partition, kafka_offset FROM tallyweir.dead_letter "
        "WHERE reason = 'MALFORMED' AND length(payload) > 10 LIMIT 1"
    )
    assert [one["name"] for one in broken["fields"]] == ["event_id"]
    assert broken["failed_field"] == "at"
    assert broken["problem"].startswith("MALFORMED: field at: no timestamp-micros at")
    invalid = world.shown(
        "SELECT kafka_partition, kafka_offset FROM tallyweir.dead_letter "
        "WHERE reason = 'NEGATIVE_AMOUNT' LIMIT 1"
    )
    assert [one["value"] for one in invalid["fields"]][1:3] == [str(NOON), "-1"]


def test_rows_of_files_become_events_of_a_new_format(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Its rows are encoded by the contract; those that do not fit are dead letters."""
    world = _World(tmp_path, kafka_bootstrap, home_dsn)
    rows = tmp_path / "readings.csv"
    rows.write_text(
        "event_id,at,amount,site\n"
        "a,2024-05-01T12:00:00Z,1,roof\n"
        "b,2024-05-01T12:00:00Z,none,\n"
        "c,2024-05-01T12:00:00Z,3,\n"
    )
    world.run("--run", "first", "--disposition=append", f"--input={rows}")
    assert world.readings() == [("a", NOON, 1, "roof"), ("c", NOON, 3, None)]
    assert world.fetch("SELECT reason, detail FROM tallyweir.dead_letter") == [
        ("ROW_MISFIT", "Column amount: 'none' is no int.")
    ]
