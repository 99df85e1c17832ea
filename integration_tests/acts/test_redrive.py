"""Dead letters go to their topic again as they were, and count once however often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.readings import Sent
from integration_tests.harness.written_topic import WrittenTopic
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.operate.redrive.redriver import RedriveReport, redrive
from tallyweir.sinks.faultpoints import RedrivePoint, Side, arm, disarm_all
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.steering import (
    RecordPosition,
    RedriveSelection,
    redriving,
)
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

_HEADERS = [("ce_id", b"1"), ("ce_source", b"/shop"), ("odd", b"\xff")]


class _KilledError(Exception):
    """Nobody catches it, so the process would be gone."""


@dataclass(frozen=True, kw_only=True)
class _World:
    """A topic with records, some of which are dead letters of a pipeline."""

    home_dsn: str
    topic: WrittenTopic
    positions: list[tuple[int, int]] = field(default_factory=list)

    def bury(self, records: list[Sent], *, reason: str = "UNDECODABLE") -> None:
        """Send records, and make each a dead letter."""
        with psycopg.connect(self.home_dsn) as home:
            for (partition, offset), record in self.topic.send(records).items():
                self.positions.append((partition, offset))
                home.execute(
                    "INSERT INTO tallyweir.dead_letter (pipeline, kafka_topic, "
                    "kafka_partition, kafka_offset, sequence, reason, detail, key, "
                    "payload) VALUES (%s, %s, %s, %s, 3, %s, 'broken', %s, %s)",
                    (
                        *(PIPELINE, self.topic.name, partition, offset),
                        *(reason, record.key, record.value),
                    ),
                )

    def die_in(self, sequence: int, *, reason: str) -> None:
        """Let each record that is buried die in another batch as well."""
        with psycopg.connect(self.home_dsn) as home:
            home.execute(
                "INSERT INTO tallyweir.dead_letter (pipeline, kafka_topic, "
                "kafka_partition, kafka_offset, sequence, reason, detail, key, payload)"
                " SELECT pipeline, kafka_topic, kafka_partition, kafka_offset, %s, %s, "
                "'broken otherwise', key, payload FROM tallyweir.dead_letter",
                (sequence, reason),
            )

    def redrive(
        self,
        *,
        group: str | None = None,
        record: RecordPosition | None = None,
        again: bool = False,
        dry_run: bool = False,
    ) -> RedriveReport:
        """Send letters again as the command does."""
        with connect(self.home_dsn, application_name="test") as home:
            return redrive(
                home,
                self.topic.bootstrap,
                RedriveSelection(pipeline=PIPELINE, group=group, record=record),
                reason="mended",
                again=again,
                dry_run=dry_run,
            )

    def define(self, path: str, value: object) -> None:
        """Change the pipeline's definition."""
        with psycopg.connect(self.home_dsn) as home:
            home.execute(
                "UPDATE tallyweir.pipeline SET definition = "
                "jsonb_set(definition, %s::text[], %s)",
                (path, Jsonb(value)),
            )

    def notes(self) -> list[TupleRow]:
        """The notes of what was sent: old and new place, and the attempt."""
        with psycopg.connect(self.home_dsn) as home:
            return home.execute(
                "SELECT kafka_partition, kafka_offset, new_partition, new_offset, "
                "attempt FROM tallyweir.redrive ORDER BY 1, 2, 5"
            ).fetchall()

    def read(self, partition: int) -> list[Message]:
        """Everything that a partition holds."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.topic.bootstrap,
                "group.id": "test",
                "auto.offset.reset": "earliest",
            }
        )
        place = KafkaTopicPartition(self.topic.name, partition)
        low, high = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([KafkaTopicPartition(self.topic.name, partition, low)])
        found: list[Message] = []
        while len(found) < high - low:
            # Asked for more than there are, it would wait for them.
            found += consumer.consume(high - low - len(found), timeout=1.0)
        consumer.close()
        return found


@pytest.fixture
def world(
    home_dsn: str, kafka_bootstrap: str, topic: str, scenario: LedgerScenario
) -> Iterator[_World]:
    """A pipeline with a topic of its own, and no dead letter yet."""
    assert scenario.sequence == 3
    log = WrittenTopic(kafka_bootstrap, topic)
    log.create(2)
    made = _World(home_dsn=home_dsn, topic=log)
    made.define("{source,topic}", topic)
    with psycopg.connect(home_dsn) as home:
        home.execute("DELETE FROM tallyweir.dead_letter")
    yield made
    disarm_all()


def _sent(number: int, partition: int = 0) -> Sent:
    key = b"k%d" % number
    return Sent(value=b"v%d" % number, key=key, partition=partition, headers=_HEADERS)


def test_a_record_is_sent_again_as_it_was(world: _World) -> None:
    """Key, payload and headers, to its partition; a tombstone and no key as well."""
    world.bury([_sent(1), _sent(2, 1), Sent(value=None, partition=1)])
    assert world.redrive().sent == 3
    first, copy = world.read(0)
    assert (copy.key(), copy.value(), copy.headers()) == (b"k1", b"v1", _HEADERS)
    assert first.headers() == copy.headers()
    *_, second, tombstone = world.read(1)
    assert (second.value(), tombstone.value()) == (b"v2", None)
    assert (second.headers(), tombstone.headers()) == (_HEADERS, None)
    assert world.notes() == [(0, 0, 0, 1, 1), (1, 0, 1, 2, 1), (1, 1, 1, 3, 1)]


def test_letters_are_sent_in_the_order_of_their_positions(world: _World) -> None:
    """Over more than one page of them."""
    world.bury([_sent(number) for number in range(250)])
    assert world.redrive().sent == 250
    values = [one.value() for one in world.read(0)]
    assert values[:250] == values[250:]


def test_what_was_sent_is_skipped_unless_it_is_asked_for(world: _World) -> None:
    """Two people who mend the same thing do it once."""
    world.bury([_sent(1)])
    assert world.redrive().sent == 1
    report = world.redrive()
    assert (report.sent, report.done_before) == (0, 1)
    assert world.redrive(again=True).sent == 1
    assert world.notes() == [(0, 0, 0, 1, 1), (0, 0, 0, 2, 2)]


def test_a_dry_run_tells_the_same_and_does_nothing(world: _World) -> None:
    """Neither in Kafka nor in the notes."""
    world.bury([_sent(1), _sent(2)])
    assert world.redrive(dry_run=True).sent == 2
    assert world.notes() == []
    assert len(world.read(0)) == 2


def test_letters_of_the_version_in_force_are_told(world: _World) -> None:
    """They may die of the same again; those of a former version may live."""
    world.bury([_sent(1), _sent(2), _sent(3)])
    assert world.redrive(dry_run=True).same_version == 3
    warned = "of them died under the version in force"
    assert warned in " ".join(world.redrive(dry_run=True).told(dry_run=True))
    with psycopg.connect(world.home_dsn) as home:
        home.execute(
            "INSERT INTO tallyweir.pipeline_version (pipeline, version, definition, "
            "definition_hash, from_sequence, reason) SELECT pipeline, 9, definition, "
            "'other', last_sequence, 'mended' FROM tallyweir.pipeline"
        )
    report = world.redrive(dry_run=True)
    assert (report.sent, report.same_version) == (3, 0)
    assert warned not in " ".join(report.told(dry_run=True))


def test_a_group_or_one_letter_is_chosen(world: _World) -> None:
    """Others stay as they are."""
    world.bury([_sent(1), _sent(2)])
    world.bury([_sent(3)], reason="IMPOSSIBLE_DISTANCE")
    place = RecordPosition(topic=world.topic.name, partition=0, offset=1)
    assert world.redrive(record=place).sent == 1
    assert world.redrive(group="IMPOSSIBLE_DISTANCE").sent == 1
    assert [row[:2] for row in world.notes()] == [(0, 1), (0, 2)]


def test_a_record_that_died_twice_is_sent_once(world: _World) -> None:
    """As after a move of the offsets back over it while its cause was not mended."""
    world.bury([_sent(1), _sent(2)])
    world.die_in(2, reason="IMPOSSIBLE_DISTANCE")
    assert world.redrive(dry_run=True).sent == 2
    # What it died of last is what has to be mended.
    assert world.redrive(group="IMPOSSIBLE_DISTANCE", dry_run=True).sent == 0
    assert world.redrive(group="UNDECODABLE").sent == 2
    assert world.notes() == [(0, 0, 0, 2, 1), (0, 1, 0, 3, 1)]
    assert world.redrive().done_before == 2


def test_what_dies_again_meanwhile_is_sent_all_the_same(world: _World) -> None:
    """Its letter of the batches that were there when it was asked for stands for it."""
    world.bury([_sent(1)])
    world.die_in(4, reason="IMPOSSIBLE_DISTANCE")
    assert world.redrive(group="UNDECODABLE").sent == 1


def test_a_record_that_died_twice_is_counted_and_shown_once(world: _World) -> None:
    """By what it died of last."""
    world.bury([_sent(1), _sent(2)])
    world.die_in(2, reason="IMPOSSIBLE_DISTANCE")
    with connect(world.home_dsn, application_name="test") as home:
        (group,) = audit.group_dead_letters(home, PIPELINE)
        assert (group.reason, group.letters) == ("UNDECODABLE", 2)
        listed = audit.read_dead_letters(home, PIPELINE, "UNDECODABLE")
        assert [(one.offset, one.sequence) for one in listed] == [(0, 3), (1, 3)]
        assert audit.read_dead_letters(home, PIPELINE, "IMPOSSIBLE_DISTANCE") == ()
        letter = audit.read_letter(
            home, PIPELINE, topic=world.topic.name, partition=0, offset=1
        )
        assert (letter.sequence, letter.detail) == (3, "broken")
        unknown = audit.explain(home, PIPELINE, "nobody", lambda _key, _id: ())
        assert unknown.letters_without_id == 2


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("point", list(RedrivePoint))
def test_after_a_crash_everything_is_sent_and_what_may_be_sent_is_known(
    world: _World, point: RedrivePoint, side: Side
) -> None:
    """Once more at most: the copies are of one event, and IDs make one of them."""
    world.bury([_sent(1), _sent(2)])
    arm(point, _killer(), side=side)
    with pytest.raises(_KilledError):
        world.redrive()
    disarm_all()
    assert {row[2] for row in world.notes()} <= {None}
    report = world.redrive()
    assert (report.sent, report.done_before, report.uncertain) == (2, 0, 0)
    copies = [one.value() for one in world.read(0)][2:]
    was_sent = (point, side) == (RedrivePoint.SENT, Side.AFTER)
    assert copies == [b"v1", b"v2"] * (1 + was_sent)
    assert world.redrive().done_before == 2


def test_without_ids_what_may_be_sent_is_not_sent_again(world: _World) -> None:
    """A second copy would count: somebody has to look, and say so."""
    world.define("{deduplicate}", None)
    world.bury([_sent(1)])
    arm(RedrivePoint.SENT, _killer())
    with pytest.raises(_KilledError):
        world.redrive()
    disarm_all()
    report = world.redrive()
    assert (report.sent, report.uncertain) == (0, 1)
    assert world.redrive(again=True).sent == 1


def _killer() -> Callable[[], None]:
    def kill() -> None:
        raise _KilledError

    return kill


def test_headers_that_are_gone_are_told(world: _World) -> None:
    """An ID that is a field is in the payload, so nothing is missing for us."""
    world.bury([_sent(1), _sent(2)])
    world.topic.delete_before(1)
    report = world.redrive()
    assert (report.sent, report.without_headers) == (2, 1)
    *_, first, second = world.read(0)
    assert (first.headers(), second.headers()) == (None, _HEADERS)


def test_a_header_with_the_id_is_written_anew_but_no_source(world: _World) -> None:
    """The letter keeps the ID; what it is unique together with only Kafka had."""
    world.bury([_sent(1), _sent(2)])
    with psycopg.connect(world.home_dsn) as home:
        home.execute("UPDATE tallyweir.dead_letter SET event_id = 'e-1'")
    world.topic.delete_before(1)
    world.define("{source,event_id}", {"header": "ce_id"})
    report = world.redrive()
    assert (report.sent, report.headers_lost) == (1, 1)
    world.define("{source,event_id}", {"header": "event-id"})
    assert world.redrive().sent == 1
    assert world.read(0)[-1].headers() == [("event-id", b"e-1")]


def test_another_record_at_that_place_does_not_lend_its_headers(world: _World) -> None:
    """A topic that was made anew has other records under the same offsets."""
    world.bury([_sent(1)])
    with psycopg.connect(world.home_dsn) as home:
        home.execute("UPDATE tallyweir.dead_letter SET payload = 'another'")
    report = world.redrive()
    assert (report.sent, report.without_headers) == (1, 1)
    assert world.read(0)[-1].headers() is None


def test_letters_of_topics_that_nobody_reads_are_left(world: _World) -> None:
    """A copy there would wait for ever, or be somebody else's."""
    world.bury([_sent(1)])
    world.define("{source,topic}", ["another-topic"])
    with pytest.raises(ConfigurationError, match="TOPIC_MISSING"):
        world.redrive()
    other = WrittenTopic(world.topic.bootstrap, f"{world.topic.name}-other")
    other.create(1)
    world.define("{source,topic}", [other.name])
    report = world.redrive()
    assert (report.sent, report.not_read) == (0, 1)


def test_only_one_sends_at_a_time(world: _World) -> None:
    """The lock is given back with the session of whoever held it."""
    world.bury([_sent(1)])
    with connect(world.home_dsn, application_name="other") as other:
        with redriving(other, PIPELINE), pytest.raises(RetryableError) as told:
            world.redrive()
        assert told.value.code == "REDRIVE_AT_WORK"
        assert world.redrive().sent == 1


def test_why_tells_of_the_letter_by_the_id_of_its_copy(world: _World) -> None:
    """The letter had no ID that could be read; the copy has."""
    world.bury([_sent(1)])
    world.redrive()
    with psycopg.connect(world.home_dsn) as home:
        home.execute(
            "INSERT INTO departures VALUES ('now-readable', now(), %s, 0, 1)",
            (world.topic.name,),
        )
        home.commit()
        found = audit.explain(home, PIPELINE, "now-readable", lambda _key, _id: ())
        told = " ".join(audit.narrate(found, lambda _payload: None))
    assert "offset 0 became a dead letter" in told
    assert "by postgres: mended; the copy is at" in told.replace(
        _user(world), "postgres"
    )
    assert "offset 1 was committed to departures" in told


def _user(world: _World) -> str:
    with psycopg.connect(world.home_dsn) as home:
        return home.info.user


def test_the_commands_list_show_and_send(
    world: _World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As somebody does it at night; the lists show what was sent."""
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", world.topic.bootstrap)
    line = CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: world.home_dsn}
    )
    world.bury([_sent(1), _sent(2)])
    record = f"{world.topic.name}/0/1"

    def said(*arguments: str) -> str:
        code, out, error = line.run("dead-letters", *arguments)
        assert code == 0, error
        return out

    shown = said("show", PIPELINE, record)
    assert f"payload (hex): {b'v2'.hex()}" in shown
    assert "header ce_source: /shop" in shown
    assert "! BAD_MAGIC: the first byte is 0x76" in shown
    reason = ("--reason", "a test")
    dry = said("redrive", PIPELINE, "--record", record, *reason, "--dry-run")
    assert "1 dead letter would be sent" in dry
    assert "1 dead letter sent again" in said(
        "redrive", PIPELINE, "--record", record, *reason
    )
    assert f"{world.topic.name}/0/2" in said("list", PIPELINE, "--group", "UNDECODABLE")
    (group,) = said("list", PIPELINE).splitlines()[1:]
    assert group.split()[:3] == ["UNDECODABLE", "2", "1"]
    for wrong in (["--all", "--group", "X"], []):
        code, _, error = line.run("dead-letters", "redrive", PIPELINE, *reason, *wrong)
        assert (code, "REDRIVE_UNCLEAR" in error) == (78, True)
    code, _, error = line.run("dead-letters", "redrive", PIPELINE, "--all", "--reason=")
    assert (code, "REASON_MISSING" in error) == (78, True)
    code, _, error = line.run("dead-letters", "show", PIPELINE, "nowhere/0/1")
    assert (code, "LETTER_UNKNOWN" in error) == (78, True)
