"""The Postgres adapter keeps every promise of the ``Home`` port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

import pytest
from psycopg import sql

from integration_tests.harness.postgres_driver import (
    arrow_rows,
    execute,
    layout_of,
    query,
)
from tallyweir.services.dev.chaos.plan import Cut, CutSide, Statement
from tallyweir.services.dev.chaos.wire_proxy import WireProxy, wire_proxy
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import (
    STAGING_SETS,
    TableNames,
    staging_table,
)
from tallyweir.sinks.postgres.staging.attempt_register import ATTEMPTS
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.testing.conformance import CASES
from tallyweir.sinks.testing.home_harness import (
    IDLE_TIMEOUT_US,
    WATERMARK_DELAY_US,
    HomeHarness,
    LedgerLine,
)
from tallyweir.sinks.testing.planned_batches import RESULTS, Position

_OUTPUT = AppendTable(table=RESULTS, staging_table=RESULTS, event_columns=())
_LAYOUT = layout_of(
    _OUTPUT, watermark_delay_us=WATERMARK_DELAY_US, idle_timeout_us=IDLE_TIMEOUT_US
)


class _PostgresHarness:
    """Binds the suite to ``PostgresHome``; drivers connect through the proxy."""

    def __init__(self, dsn: str, proxy: WireProxy) -> None:
        self._dsn = dsn
        self._proxy = proxy
        self._homes: list[PostgresHome] = []

    def new_driver(self) -> PostgresHome:
        home = PostgresHome(self._proxy.dsn, _LAYOUT)
        self._homes.append(home)
        return home

    def close(self) -> None:
        for home in self._homes:
            home.close()

    def stage(
        self, plan: BatchPlan, attempt: Attempt, rows: Iterable[Position]
    ) -> None:
        staged = [(tp.topic, tp.partition, offset) for tp, offset in rows]
        with (
            connect(self._dsn, application_name="test task") as connection,
            StagingWriter(
                connection,
                TableNames(
                    pipeline_number=self._pipeline_number(),
                    epoch=plan.key.epoch,
                    sequence=plan.sequence,
                ),
                attempt=attempt,
            ) as writer,
        ):
            writer.copy(RESULTS, _OUTPUT.columns, arrow_rows(_OUTPUT.columns, staged))

    def published(self) -> list[Position]:
        rows = query(
            self._dsn,
            "SELECT kafka_topic, kafka_partition, kafka_offset FROM results "
            "ORDER BY 1, 2, 3",
        )
        return [(TopicPartition(topic, number), o) for topic, number, o in rows]

    def ledger(self) -> list[LedgerLine]:
        rows = query(
            self._dsn,
            "SELECT sequence, epoch, coalesce(sum(committed), 0), checksum "
            "FROM tallyweir.batch "
            "LEFT JOIN tallyweir.batch_partition USING (pipeline, sequence) "
            "GROUP BY pipeline, sequence ORDER BY sequence",
        )
        return [
            LedgerLine(
                sequence=sequence,
                epoch=epoch,
                committed=int(committed),
                checksum=int(checksum),
            )
            for sequence, epoch, committed, checksum in rows
        ]

    def refuse(self, rows: Iterable[Position]) -> None:
        for topic_partition, offset in rows:
            execute(
                self._dsn,
                "ALTER TABLE results ADD CHECK (kafka_partition <> "
                f"{topic_partition.partition} OR kafka_offset <> {offset})",
            )

    def crash_server(self) -> None:
        ((epoch,),) = query(self._dsn, "SELECT max(epoch) FROM tallyweir.epoch_claim")
        number = self._pipeline_number()
        with connect(self._dsn, application_name="test crash") as connection:
            for table, each in product((RESULTS, ATTEMPTS), range(STAGING_SETS)):
                staging = staging_table(number, epoch, table, sequence=each)
                connection.execute(sql.SQL("TRUNCATE {}").format(staging))

    def make_idle(self, topic_partition: TopicPartition) -> None:
        execute(
            self._dsn,
            "UPDATE tallyweir.partition_progress SET active_at = active_at - "
            f"interval '{IDLE_TIMEOUT_US // 1_000_000 + 1} seconds' "
            f"WHERE partition = {topic_partition.partition}",
        )

    def undo_newest_claim(self) -> None:
        newest = "WHERE epoch = (SELECT max(epoch) FROM tallyweir.epoch_claim)"
        execute(
            self._dsn,
            f"DELETE FROM tallyweir.pipeline_version {newest}",
            f"DELETE FROM tallyweir.epoch_claim {newest}",
        )

    def lose_next_answer(self, *, committed: bool) -> None:
        side = CutSide.AFTER if committed else CutSide.BEFORE
        self._proxy.arm(Cut(statement=Statement.PUBLISH_COMMIT, side=side, skip=0))

    def _pipeline_number(self) -> int:
        ((number,),) = query(
            self._dsn, "SELECT pipeline_number FROM tallyweir.pipeline"
        )
        return int(number)


@pytest.fixture
def postgres_harness(home_dsn: str) -> Iterator[_PostgresHarness]:
    """A pipeline on a fresh database whose drivers connect through a proxy."""
    with wire_proxy(home_dsn) as proxy:
        harness = _PostgresHarness(home_dsn, proxy)
        yield harness
        harness.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_postgres_home_conforms(
    case: Callable[[HomeHarness], None], postgres_harness: _PostgresHarness
) -> None:
    """Each case of the suite holds on a real server."""
    case(postgres_harness)
