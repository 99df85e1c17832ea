"""The home database is restored: the pipeline notices, and heals from Kafka.

One history is written, then put back again and again to another place of its WAL,
while the topic and the driver that ran are far ahead.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from integration_tests.harness.drilled_topic import (
    DrilledDriver,
    DrillEvent,
    drilled_topic,
    final_tables,
    run_undisturbed,
)
from integration_tests.harness.postgres_cluster import ArchivedServer
from integration_tests.harness.postgres_driver import query
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import BatchTally

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_RECORDS = 900
_BATCHES_BEFORE_THE_CLAIM = 6
_BATCHES_AFTER_IT = 12
_BATCH_NOW = "SELECT last_sequence FROM tallyweir.pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """What happened before anything was restored.

    Attributes:
        archived: The server; one backup, and the WAL of all that came after it.
        chance: Decides where the drills go.
        topic: What the pipeline reads.
        undisturbed: The tables of a run over the topic that nothing disturbed.
        running: The driver of the newest epoch, still alive.
        batch: What it had staged when the database went away.
        claimed: Where in the WAL its claim stands.
        places: Where in the WAL each of its batches ended, by sequence.
    """

    archived: ArchivedServer
    chance: random.Random
    topic: list[DrillEvent]
    undisturbed: dict[str, Any]
    running: DrilledDriver
    batch: tuple[BatchPlan, BatchTally]
    claimed: int
    places: dict[int, int]

    @property
    def dsn(self) -> str:
        return self.archived.dsn

    def refusal(self) -> str:
        """Let the running driver publish what it has staged; return why it may not."""
        with pytest.raises(TallyweirError) as raised:
            self.running.publish(*self.batch)
        return raised.value.code

    def refusal_after_reconnecting(self) -> str:
        """Return why the running driver stops, once it has found its server again."""
        assert self.refusal() in ("POSTGRES_UNAVAILABLE", "POSTGRES_UNREACHABLE")
        return self.refusal()

    def assert_heals(self) -> None:
        """Start a driver as an operator would, and compare what it leaves."""
        DrilledDriver(self.dsn, self.topic, self.chance).run_to_the_end()
        found = final_tables(self.dsn)
        assert self.undisturbed == found


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_History]:
    """Write the history: two drivers one after the other, a backup under the first."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")  # noqa: T201 - a failure must tell it
    chance = random.Random(seed)
    archived = ArchivedServer(tmp_path_factory.mktemp("archived"))
    archived.start()
    topic = drilled_topic(chance, _RECORDS)
    undisturbed = run_undisturbed(archived.dsn, topic, chance)
    migrate(archived.dsn)
    first = DrilledDriver(archived.dsn, topic, chance)
    first.run_batches(1)
    archived.take_backup()
    first.run_batches(_BATCHES_BEFORE_THE_CLAIM)
    claimed = archived.wal_position()
    running = DrilledDriver(archived.dsn, topic, chance)
    places = {}
    for _ in range(_BATCHES_AFTER_IT):
        running.run_batches(1)
        ((sequence,),) = query(archived.dsn, _BATCH_NOW)
        places[sequence] = archived.wal_position()
    batch = running.stage_batch()
    archived.archive_everything()
    yield _History(
        archived=archived,
        chance=chance,
        topic=topic,
        undisturbed=undisturbed,
        running=running,
        batch=batch,
        claimed=claimed,
        places=places,
    )
    running.close()
    archived.server.stop()


@pytest.mark.parametrize("drill", range(4))
def test_a_restore_into_the_middle_of_a_batch_is_noticed_and_healed(
    history: _History, drill: int
) -> None:
    """The driver that ran stops; the next one reads on from the restored offsets."""
    last = history.chance.choice(sorted(history.places)[:-2])
    position = history.chance.randint(
        history.places[last], history.places[last + 1] - 1
    )
    print(f"drill {drill}: batch {last}, position {position}")  # noqa: T201
    history.archived.restore_to_position(position)
    # Mostly the batch before; the last bytes of a batch come after its COMMIT.
    assert query(history.dsn, _BATCH_NOW)[0][0] in (last, last + 1)

    assert "OFFSETS_DISAGREE" == history.refusal_after_reconnecting()
    history.assert_heals()
    assert "FENCED" == history.refusal()


def test_a_restore_to_before_a_claim_is_told_from_a_fence(history: _History) -> None:
    """An epoch that the database forgot is lost, also when another has claimed it."""
    first_after_backup = min(history.places) - _BATCHES_BEFORE_THE_CLAIM
    history.archived.restore_to_position(history.claimed)
    assert query(history.dsn, _BATCH_NOW)[0][0] >= first_after_backup

    assert "CLAIM_LOST" == history.refusal_after_reconnecting()
    history.assert_heals()
    # By now the very same epoch is claimed, by the driver that healed.
    newest = query(history.dsn, "SELECT max(epoch) FROM tallyweir.epoch_claim")
    assert [(history.batch[0].key.epoch,)] == newest
    assert "CLAIM_LOST" == history.refusal()


def test_a_restore_to_a_moment_heals(history: _History) -> None:
    """Operators name a time; it falls between two commits like any other place."""
    history.archived.restore_to_position(max(history.places.values()))
    sequence = history.chance.choice(sorted(history.places)[:-2])
    ((moment,),) = query(
        history.dsn,
        "SELECT published_at::text FROM tallyweir.batch WHERE sequence = %s",
        sequence + 1,
    )
    history.archived.restore_to_time(moment)
    assert [(sequence,)] == query(history.dsn, _BATCH_NOW)

    assert "OFFSETS_DISAGREE" == history.refusal_after_reconnecting()
    history.assert_heals()


def test_a_restore_that_loses_no_batch_loses_the_staged_rows(
    history: _History,
) -> None:
    """Staging is empty after a restore, so a batch that was staged is staged again."""
    history.archived.restore_to_position(max(history.places.values()))
    assert [(max(history.places),)] == query(history.dsn, _BATCH_NOW)

    assert "STAGED_ROWS_MISSING" == history.refusal_after_reconnecting()
    history.assert_heals()
