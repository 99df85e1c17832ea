"""Postgres keeps every promise that is made of several databases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
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
from tallyweir.sinks.postgres.branches import participant
from tallyweir.sinks.postgres.branches.participant import PostgresParticipant
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
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.testing.participant_conformance import BRANCH_CASES
from tallyweir.sinks.testing.participant_harness import (
    BRANCHES,
    OTHER,
    DriverPorts,
    Lossy,
    ParticipantHarness,
)
from tallyweir.sinks.testing.planned_batches import HOME, RESULTS, Position, staged_for

_OUTPUT = AppendTable(
    table=RESULTS, staging_table=RESULTS, event_columns=(), branches=BRANCHES
)
_LAYOUT = layout_of(_OUTPUT)
_LOSS_TIMEOUT_S = 30.0

_NEWEST = "(SELECT max(sequence) FROM tallyweir.batch)"
_FORGET_AT_HOME = (
    f"""
    DELETE FROM results USING tallyweir.batch_partition
    WHERE kafka_offset >= from_offset AND sequence = {_NEWEST}
    """,
    f"""
    UPDATE tallyweir.partition_progress SET next_offset = from_offset
    FROM tallyweir.batch_partition WHERE sequence = {_NEWEST}
    """,
    "UPDATE tallyweir.pipeline SET last_sequence = last_sequence - 1",
    *(
        f"DELETE FROM tallyweir.{table} WHERE sequence = {_NEWEST}"
        for table in ("batch_branch", "batch_output", "batch_partition", "batch")
    ),
)


class _PostgresHarness:
    """Binds the suite to the adapters, which connect through proxies."""

    def __init__(self, dsn: str, other_dsn: str, stack: ExitStack) -> None:
        self._dsns = {HOME: dsn, OTHER: other_dsn}
        self._proxies = {
            name: stack.enter_context(wire_proxy(one))
            for name, one in self._dsns.items()
        }
        self._stack = stack
        self._claim: EpochClaim | None = None
        self._lossy: WireProxy | None = None

    def new_driver(self) -> DriverPorts:
        home = PostgresHome(self._proxies[HOME].dsn, _LAYOUT)
        self._stack.callback(home.close)
        home.claim_epoch()
        self._claim = home.claim
        other = PostgresParticipant(
            self._proxies[OTHER].dsn, OTHER, _LAYOUT, home.claim
        )
        self._stack.callback(other.close)
        return DriverPorts(home=home, participant=other)

    def stage(
        self, plan: BatchPlan, attempt: Attempt, branch: str, rows: Iterable[Position]
    ) -> None:
        staged = [(tp.topic, tp.partition, offset) for tp, offset in rows]
        dsn = self._dsns[HOME if branch == HOME else OTHER]
        assert self._claim is not None
        with (
            connect(dsn, application_name="test task") as connection,
            StagingWriter(
                connection,
                TableNames(
                    pipeline_number=self._claim.pipeline_number,
                    epoch=plan.key.epoch,
                    sequence=plan.sequence,
                    installation=None if branch == HOME else self._claim.installation,
                ),
                attempt=attempt,
            ) as writer,
        ):
            writer.copy(
                staged_for(branch),
                _OUTPUT.columns,
                arrow_rows(_OUTPUT.columns, staged),
            )

    def published(self, database: str) -> list[int]:
        rows = query(
            self._dsns[database], "SELECT kafka_offset FROM results ORDER BY 1"
        )
        return [offset for (offset,) in rows]

    def visible_through(self) -> int:
        ((sequence,),) = query(
            self._dsns[HOME], "SELECT sequence FROM tallyweir.visible_through"
        )
        return int(sequence)

    def refuse(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            execute(
                self._dsns[OTHER],
                f"ALTER TABLE results ADD CHECK (kafka_offset <> {offset})",
            )

    def empty_staging(self) -> None:
        assert self._claim is not None
        with connect(self._dsns[OTHER], application_name="test crash") as connection:
            tables = [ATTEMPTS, *map(staged_for, BRANCHES[1:])]
            for table, each in product(tables, range(STAGING_SETS)):
                staging = staging_table(
                    self._claim.pipeline_number,
                    self._claim.epoch,
                    table,
                    sequence=each,
                    installation=self._claim.installation,
                )
                # TRUNCATE would wait for branches that are prepared.
                connection.execute(sql.SQL("DELETE FROM {}").format(staging))

    def forget_newest_batch(self, database: str) -> None:
        if database == HOME:
            execute(self._dsns[HOME], *_FORGET_AT_HOME)
            return
        ((first,),) = query(
            self._dsns[HOME],
            "SELECT from_offset FROM tallyweir.batch_partition ORDER BY 1 DESC LIMIT 1",
        )
        execute(
            self._dsns[OTHER],
            f"DELETE FROM results WHERE kafka_offset >= {first}",
            "DELETE FROM tallyweir_participant.marker WHERE sequence = "
            "(SELECT max(sequence) FROM tallyweir_participant.marker)",
        )

    def lose_next_answer(self, statement: Lossy, *, acted: bool) -> None:
        database, cut_at = {
            Lossy.COMMIT: (HOME, Statement.PUBLISH_COMMIT),
            Lossy.PREPARE: (OTHER, Statement.PREPARE),
            Lossy.COMMIT_PREPARED: (OTHER, Statement.COMMIT_PREPARED),
        }[statement]
        self._lossy = self._proxies[database]
        side = CutSide.AFTER if acted else CutSide.BEFORE
        self._lossy.arm(Cut(statement=cut_at, side=side, skip=0))

    def await_loss(self) -> None:
        assert self._lossy is not None
        assert self._lossy.await_cut(_LOSS_TIMEOUT_S)


@pytest.fixture
def participant_harness(
    home_dsn: str, billing_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[_PostgresHarness]:
    """A pipeline on two fresh databases, in which nobody waits long for a lock."""
    settings = participant._PUBLISH["begin_settings"].as_string()
    assert "'lock_timeout', '30s'" in settings
    shorter = settings.replace("'lock_timeout', '30s'", "'lock_timeout', '200ms'")
    monkeypatch.setitem(participant._PUBLISH, "begin_settings", sql.SQL(shorter))
    with ExitStack() as stack:
        yield _PostgresHarness(home_dsn, billing_dsn, stack)


@pytest.mark.parametrize("case", BRANCH_CASES, ids=lambda case: case.__name__)
def test_postgres_participant_conforms(
    case: Callable[[ParticipantHarness], None], participant_harness: _PostgresHarness
) -> None:
    """Each case of the suite holds on a real server."""
    case(participant_harness)
