"""A whole system in containers, each kind of which is killed once under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.containers.deployment import Deployment, last_json
from integration_tests.containers.http_producer import BlindHttpProducer
from integration_tests.containers.patience import WAIT_S, await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_EVENTS = 12_000
_HTTP_EVENTS = 300


def test_a_cluster_counts_each_event_once_while_each_kind_of_container_is_killed(
    system: Deployment,
) -> None:
    """What was sent is what became of it, and both databases have every batch."""
    demo = system.run(
        "tallyweir", "demo", "--external", "--json", f"--events={_EVENTS}"
    )
    before = 0
    for victim in ("driver", "spark-worker-1", "kafka", "relay"):
        before = _await_batches_after(system, before + 2)
        system.container(victim).kill()
        system.container(victim).start()
        system.await_ready(victim)
    assert demo.wait(timeout=WAIT_S)["StatusCode"] == 0, demo.logs().decode()[-4_000:]
    receipt = last_json(demo.logs().decode())
    assert receipt["verified"] is True
    assert receipt["committed"] == receipt["unique"] == _EVENTS
    assert receipt["duplicate"] > 0
    assert receipt["dead"] > 0
    ((drivers,),) = system.query("SELECT count(DISTINCT epoch) FROM tallyweir.batch")
    assert int(drivers) >= 2, "no batch was published after the driver was killed"
    assert system.query("SELECT gid FROM pg_prepared_xacts") == []


def test_every_event_that_ingest_acknowledged_is_counted_once(
    system: Deployment, secrets: Path
) -> None:
    """A producer that retries blindly; ingest dies on it, and then Postgres."""
    events = [_flight(number) for number in range(_HTTP_EVENTS)]
    key = (secrets / "ingest.key").read_text().strip()
    producer = BlindHttpProducer(
        lambda: system.address("ingest"), "flight-departures", key, events
    )
    producer.start()
    for part, victim in enumerate(("ingest", "postgres"), start=1):
        _await_accepted(producer, part * _HTTP_EVENTS // 3)
        system.container(victim).kill()
        system.container(victim).start()
        system.await_ready(victim)
    producer.join(WAIT_S)
    assert not producer.is_alive()
    assert producer.failures > 0, "the service was never away"
    for table, database in (
        ("departures", "tallyweir"),
        ("departures_archive", "archive"),
    ):
        _await_each_once(system, table, database)
    found = system.query(
        "SELECT kafka_partition, kafka_offset FROM departures "
        "WHERE event_id ~ '^demo' UNION ALL SELECT kafka_partition, kafka_offset "
        "FROM tallyweir.duplicate_event WHERE event_id ~ '^demo'"
    )
    positions = {(int(partition), int(offset)) for partition, offset in found}
    assert producer.acknowledged.keys() <= positions


def test_dead_letters_are_in_their_topic_each_under_one_id(system: Deployment) -> None:
    """The relay was killed on the way, so a repeat is allowed, a loss is not."""
    wanted = system.query(
        "SELECT kafka_partition || '/' || kafka_offset FROM tallyweir.dead_letter"
    )
    await_true(lambda: _backlog(system) == 0, "the relay to have sent everything")
    reader = system.run_python("dead_letters")
    lines = [line.split(" ") for line in reader.splitlines()]
    assert {position for _, position in lines} == {row[0] for row in wanted}
    assert len({ce_id for ce_id, _ in lines}) == len(wanted)


def test_no_secret_is_in_any_log(system: Deployment, secrets: Path) -> None:
    """Not one password or key, in what a container wrote or was started with."""
    canaries = [path.read_text().strip() for path in secrets.glob("*.password")]
    canaries.append((secrets / "ingest.key").read_text().strip())
    assert len(canaries) > 10
    for service in system.services:
        container = system.container(service)
        shown = system.log(service) + str(container.attrs)
        assert [canary for canary in canaries if canary in shown] == [], service


def test_every_container_of_ours_runs_without_rights(system: Deployment) -> None:
    """What the compose file asks for is what the engine did."""
    ours = [s for s in system.services if s not in {"kafka", "postgres"}]
    assert len(ours) >= 9
    for service in ours:
        container = system.container(service)
        host = container.attrs["HostConfig"]
        assert host["ReadonlyRootfs"] is True, service
        assert host["CapDrop"] == ["ALL"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert container.attrs["Config"]["User"] == "65532:65532", service


def test_sigterm_lets_a_driver_finish(system: Deployment) -> None:
    """It ends by itself with exit code 0, long before the engine loses patience."""
    driver = system.container("driver")
    driver.stop(timeout=120)
    assert system.container("driver").attrs["State"]["ExitCode"] == 0
    assert '"at rest"' in system.log("driver")
    driver.start()
    system.await_ready("driver")


def _flight(number: int) -> dict[str, object]:
    return {
        "event_id": f"demo:{number}",
        "scheduled_at": "2013-01-12T10:15:00Z",
        "carrier": "UA",
        "flight": number,
        "tailnum": None,
        "origin": "EWR",
        "destination": "IAH",
        "distance_miles": 1400,
        "dep_delay_minutes": 2,
        "arr_delay_minutes": None,
        "air_time_minutes": None,
    }


def _await_batches_after(system: Deployment, sequence: int) -> int:
    """Wait until a batch of that number is published; return the newest."""

    def last() -> int:
        rows = system.query("SELECT coalesce(max(sequence), 0) FROM tallyweir.batch")
        return int(rows[0][0])

    await_true(lambda: last() >= sequence, f"batch {sequence}")
    return last()


def _await_accepted(producer: BlindHttpProducer, events: int) -> None:
    await_true(lambda: producer.accepted > events, f"{events} accepted events")


def _await_each_once(system: Deployment, table: str, database: str) -> None:
    sql = (
        f"SELECT count(*), count(DISTINCT event_id) FROM {table} "
        "WHERE event_id ~ '^demo'"
    )
    wanted = [[str(_HTTP_EVENTS)] * 2]
    await_true(lambda: system.query(sql, database) == wanted, f"each event in {table}")


def _backlog(system: Deployment) -> int:
    ((backlog,),) = system.query(
        "SELECT count(*) FROM tallyweir.dead_letter AS d "
        "LEFT JOIN tallyweir.relay_cursor AS c "
        "ON c.pipeline = d.pipeline AND stream = 'dead_letter' "
        "WHERE c.pipeline IS NULL OR (d.sequence, d.kafka_topic, d.kafka_partition, "
        "d.kafka_offset) > (c.sequence, c.kafka_topic, c.kafka_partition, "
        "c.kafka_offset)"
    )
    return int(backlog)
