"""Alerts on real servers: told once, not forgotten, not repeated, and ended."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from integration_tests.harness.alert_receivers import (
    HttpReceiver,
    http_receiver,
)
from integration_tests.harness.alert_service import alert_process
from integration_tests.harness.alerted_home import (
    SECRET,
    alerted_home,
    list_firing,
    make_service,
    send,
    write_rules,
)
from integration_tests.harness.postgres_driver import query
from integration_tests.harness.relayed_home import DEADLINE_S, RelayedHome, wait_for
from integration_tests.harness.role_world import OWNER, role_world
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.services.alerts.channels import ID_HEADER, SIGNATURE_HEADER, sign
from tallyweir.services.cli.doctor.checks import check_rules
from tallyweir.services.kafka.pipeline_offsets import StoredOffsets, compare_offsets
from tallyweir.services.kafka.retention import KafkaRetention
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.audit import read_overview
from tallyweir.sinks.postgres.records.alert_book import AlertBook
from tallyweir.sinks.postgres.schema.roles import ALERTS
from tallyweir.sinks.protocol.errors import RetryableError


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    """Takes what webhooks send."""
    with http_receiver() as opened:
        yield opened


@pytest.fixture
def home(home_dsn: str, kafka_bootstrap: str) -> RelayedHome:
    """A pipeline whose driver is gone, and its topic, which is empty."""
    return alerted_home(home_dsn, kafka_bootstrap)


_STALL = "  stalled: {when: stall, for: 2 s, severity: page, channels: [hook]}\n"


def test_a_stall_is_told_once_whatever_becomes_of_the_service_and_its_end_too(
    server_dsn: str, kafka_bootstrap: str, receiver: HttpReceiver, tmp_path: Path
) -> None:
    """It dies, another one takes over, one stands by: nobody is told twice.

    All of them work as the role that has no right but these.
    """
    with role_world(server_dsn) as world:
        home = alerted_home(world.dsn(OWNER), kafka_bootstrap)
        late = alerted_home(world.dsn(OWNER), kafka_bootstrap)
        rules = write_rules(tmp_path, receiver.url, _STALL)
        start = (rules, world.dsn(ALERTS), kafka_bootstrap, SECRET)
        send(home, 3)
        with alert_process(*start) as first:
            wait_for(lambda: bool(receiver.posted), "being told")
            assert ["firing"] == receiver.about(home.pipeline)
            first.wait_for_event("told")
            first.end(signal.SIGKILL)
        with alert_process(*start) as second, alert_process(*start) as third:
            wait_for(
                lambda: (
                    {"alerts active", "standing by"}
                    <= {x["event"] for x in second.lines + third.lines}
                ),
                "one at work and one standing by",
            )
            send(late, 1)
            # Who is told of this one has looked at the other one again and again.
            wait_for(lambda: receiver.about(late.pipeline) != [], "being told again")
            assert ["firing"] == receiver.about(home.pipeline)
            home.publish(3)
            wait_for(lambda: "resolved" in receiver.about(home.pipeline), "its end")
            late.publish(1)
            wait_for(lambda: "resolved" in receiver.about(late.pipeline), "its end")
            assert 0 == second.end()
            assert 0 == third.end()
        assert ["firing", "resolved"] == receiver.about(home.pipeline)
        assert ["firing", "resolved"] == receiver.about(late.pipeline)
        told = json.dumps([second.lines, third.lines])
        assert "hush" not in told
        assert receiver.url not in told
    assert len(set(receiver.ids())) == len(receiver.ids()) == 4
    for posted in receiver.posted:
        assert sign("hush", posted.body) == posted.headers[SIGNATURE_HEADER]
        assert posted.json["id"] == posted.headers[ID_HEADER]


def test_a_notification_whose_answer_was_lost_is_told_again_under_the_same_id(
    home: RelayedHome,
    receiver: HttpReceiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At least once: the note comes after the sending, and may not come."""
    rules = "  gone: {when: driver_gone, channels: [hook]}\n"
    service = make_service(home, write_rules(tmp_path, receiver.url, rules))

    def die(book: AlertBook, *_: object, **__: object) -> None:
        book.close()
        raise RetryableError("LOST", saw="", why="", fix="")

    with monkeypatch.context() as patch:
        patch.setattr(AlertBook, "note_delivered", die)
        assert ["LOST"] == service.run_round()
    assert [("gone", ("hook",))] == list_firing(home.dsn)
    assert [] == service.run_round()
    assert [] == service.run_round()
    one, again = receiver.ids()
    assert one == again
    assert [("gone", ())] == list_firing(home.dsn)
    service._end_tenure()


def test_a_budget_that_is_passed_fires_and_ends(
    home: RelayedHome, receiver: HttpReceiver, tmp_path: Path
) -> None:
    """What batches have measured, times the prices beside the rules."""
    home.publish(2)
    home.execute(
        "INSERT INTO tallyweir.batch_measures "
        f"VALUES ('{home.pipeline}', 1, '{{\"cpu_seconds\": {{\"tasks\": 3600}}}}')"
    )
    (tmp_path / "prices.yaml").write_text(
        "{currency: EUR, vcpu_hour: 1, budget: {per_million_events: 200000}}"
    )
    rule = "{when: over_budget, prices: prices.yaml, channels: [hook]}"
    rules = write_rules(tmp_path, receiver.url, f"  dear: {rule}\n")
    # An hour of CPU for four records; the alert begins with one service, and ends with
    # another, which has added nothing up before.
    for measures, about in (("3600", ["firing"]), ("36", ["firing", "resolved"])):
        home.execute(
            "UPDATE tallyweir.batch_measures SET measures = "
            f'\'{{"cpu_seconds": {{"tasks": {measures}}}}}\''
        )
        service = make_service(home, rules)
        assert [] == service.run_round()
        service._end_tenure()
        assert about == receiver.about(home.pipeline)
    assert (
        "a million records takes 125% of its budget" in receiver.posted[0].json["told"]
    )


def test_the_doctor_warns_of_a_rule_about_no_pipeline(
    home: RelayedHome,
    receiver: HttpReceiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be one that is yet to start, so it is no failure."""
    monkeypatch.setenv("HOOK_SECRET", "hush")
    rules = write_rules(
        tmp_path,
        receiver.url,
        "  all: {when: paused, above: 1 h, channels: [hook]}\n"
        "  typed-wrong: {when: paused, above: 1 h, pipelines: 'x-*', channels: []}\n",
    )
    found = [*check_rules(rules, home.dsn)]
    assert all(one.ok for one in found)
    (warned,) = [one for one in found if one.is_warning]
    assert "typed-wrong" in warned.saw
    assert home.pipeline in warned.saw
    assert receiver.posted == []


def test_a_channel_that_refuses_is_tried_again_and_keeps_nobody_waiting(
    home: RelayedHome, receiver: HttpReceiver, tmp_path: Path
) -> None:
    """Each channel has its own queue; an end is told after its begin."""
    with http_receiver() as other:
        rules = write_rules(
            tmp_path,
            receiver.url,
            "  gone: {when: driver_gone, channels: [hook, other]}\n",
            f"  other: {{kind: webhook, url: '{other.url}'}}\n",
        )
        service = make_service(home, rules)
        receiver.status = 500
        assert ["ALERT_CHANNEL_REFUSED"] == service.run_round()
        assert ["firing"] == other.about(home.pipeline)
        assert [("gone", ("hook",))] == list_firing(home.dsn)
        # Nobody hurries a channel that has just refused.
        assert [] == service.run_round()
        assert 1 == len(receiver.posted)
        home.execute(
            "INSERT INTO tallyweir.pause (pipeline, epoch, reason) "
            f"VALUES ('{home.pipeline}', 1, 'a test')"
        )
        assert [] == service.run_round()
        assert ["firing", "resolved"] == other.about(home.pipeline)
        assert ["firing"] == receiver.about(home.pipeline)
        receiver.status = 204
        home.execute("UPDATE tallyweir.alert_delivery SET due_at = now()")
        assert [] == service.run_round()
        assert [] == service.run_round()
        assert ["firing", "firing", "resolved"] == receiver.about(home.pipeline)
        assert [] == list_firing(home.dsn)
        service._end_tenure()


def test_the_headroom_is_that_of_the_oldest_unread_record(
    home: RelayedHome, kafka_bootstrap: str
) -> None:
    """Five of ten minutes are over; then Kafka deletes what is unread.

    ``offsets show`` says the same as alerts do.
    """
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap, "log_level": 0})

    def configure(name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(
            ResourceType.TOPIC, home.topic, incremental_configs=[entry]
        )
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)

    configure("retention.ms", "600000")
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "log_level": 0})
    now = datetime.now(UTC)
    for minutes in (5, 4, 3):
        at_ms = int((now - timedelta(minutes=minutes)).timestamp() * 1_000)
        producer.produce(home.topic, b"x", partition=1, timestamp=at_ms)
    assert 0 == producer.flush(DEADLINE_S)

    def headroom() -> float:
        positions, troubles = KafkaAdmin(kafka_bootstrap, home.topic).read_there()
        assert positions is not None
        assert [] == list(troubles)
        with psycopg.connect(home.dsn) as connection:
            (found,) = read_overview(connection)
        asked = KafkaRetention(kafka_bootstrap)
        left = asked.read_unread(found.next_offsets, positions, now).headroom_s
        stored = StoredOffsets(next_offsets=found.next_offsets, topics=(home.topic,))
        shown = [
            math.inf if one.headroom_s is None else one.headroom_s
            for one in compare_offsets(kafka_bootstrap, stored, now=now)
        ]
        assert left == min(shown)
        return left

    assert math.isclose(300, headroom(), abs_tol=1)
    home.execute(
        "UPDATE tallyweir.partition_progress SET next_offset = 1 WHERE partition = 1"
    )
    assert math.isclose(360, headroom(), abs_tol=1)
    WrittenTopic(kafka_bootstrap, home.topic).delete_before(2, partition=1)
    assert 0 == headroom()
    home.execute(
        "UPDATE tallyweir.partition_progress SET next_offset = 3 WHERE partition = 1"
    )
    assert math.inf == headroom()
    home.execute(
        "UPDATE tallyweir.partition_progress SET next_offset = 2 WHERE partition = 1"
    )
    assert math.isclose(420, headroom(), abs_tol=1)
    configure("cleanup.policy", "compact")
    assert math.inf == headroom()


def test_check_says_what_holds_and_tells_nobody(
    home: RelayedHome, receiver: HttpReceiver, tmp_path: Path
) -> None:
    """And list shows what the service has found."""
    rules = write_rules(
        tmp_path,
        receiver.url,
        _STALL
        + "  gone: {when: driver_gone, channels: [hook]}\n"
        + "  other: {when: driver_gone, pipelines: nobody, channels: []}\n",
    )
    send(home, 1)
    told = _run(home, "--rules", str(rules), "--check")
    words = {line.split("  ")[0]: line for line in told.splitlines()}
    assert "holds, fires after 2 s" in words["stalled"]
    assert "No driver is connected" in words["gone"]
    assert "no pipeline" in words["other"]
    assert [] == receiver.posted
    assert [] == query(home.dsn, "SELECT rule FROM tallyweir.alert")
    assert "Nothing fires." in _run(home, "list")
    assert "gone" in _run(home, "--rules", str(rules), "--once")
    (firing,) = json.loads(_run(home, "list", "--json"))["firing"]
    assert (home.pipeline, "gone", []) == (
        firing["pipeline"],
        firing["rule"],
        firing["untold"],
    )


def _run(home: RelayedHome, *arguments: str) -> str:
    done = subprocess.run(
        [*(sys.executable, "-P", "-m", "tallyweir.services.cli", "alerts"), *arguments],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT / "src"),
            "TALLYWEIR_HOME_DSN": home.dsn,
            "TALLYWEIR_KAFKA_BOOTSTRAP": home.bootstrap,
            **SECRET,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout
