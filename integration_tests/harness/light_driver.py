"""``python -m integration_tests.harness.light_driver``: a driver without Spark.

A process of its own with the production coordinator, publisher and databases. Its
source is the numbers themselves: offset n of the one partition holds the number n,
which is staged for the branch ``n % branches``. So it starts in a second, and a test
can let it die at each point of the protocol.

It reads one JSON object from its first argument::

    {"home": DSN, "databases": {name: DSN}, "until": OFFSET,
     "fault": {"point": "voted", "side": "before", "kind": "kill"}}

The fault happens in the second batch, or in the one whose number it has as "batch". The
server soon gives up a driver that hangs in a transaction, unless it "is_patient".
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from integration_tests.harness.postgres_driver import (
    TP,
    PostgresDriver,
    append_table,
    layout_of,
)
from tallyweir.sinks.faultpoints import FaultPoint, Side, arm, making
from tallyweir.sinks.postgres.branches import participant
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.publish import publish_transaction
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.naming import HOME, branch_name, staged_for
from tallyweir.sinks.protocol.coordinator import Coordinator
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.errors import RetryableError, TallyweirError
from tallyweir.sinks.protocol.identity import Attempt, Epoch
from tallyweir.sinks.protocol.ports import BatchPlan, RejectedRow, StagedBatch
from tallyweir.sinks.protocol.votes import (
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
)
from tallyweir.sinks.testing.planned_batches import plan_batch

TABLE = "numbers"
BATCH = 6

#: The fault of this process: an error that nobody expects.
INJECTED = "an injected error"


def layout(databases: Sequence[str]) -> PipelineLayout:
    """Describe the one output, spread over the home and some other databases."""
    branches = (HOME, *(branch_name(name, 0) for name in sorted(databases)))
    output = append_table(TABLE, number="bigint")
    return layout_of(replace(output, branches=branches))


class LightDriver:
    """Runs batches until an offset is reached, and starts over as drivers do."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self._orders = orders
        self._layout = self._lay_out()
        self._attempts = 0
        self._epoch: Epoch | None = None

    def _lay_out(self) -> PipelineLayout:
        return layout(list(self._orders["databases"]))

    def run(self) -> None:
        """Run to the end; an outage of a moment is outlived."""
        while True:
            try:
                self._claim_and_run()
            except TallyweirError as error:
                # Whoever is superseded finds tables gone and branches rolled back;
                # what it is to be told is that it is superseded.
                if self._epoch is not None:
                    self._check_that_nobody_took_over(self._epoch)
                if not isinstance(error, RetryableError):
                    raise
                print(f"starting over: {error}", file=sys.stderr)  # noqa: T201
                continue
            return

    def _claim_and_run(self) -> None:
        if self._epoch is not None:
            self._check_that_nobody_took_over(self._epoch)
        driver = PostgresDriver(
            dsn=self._orders["home"],
            layout=self._layout,
            databases=self._orders["databases"],
        )
        self._epoch = driver.epoch
        coordinator = Coordinator(driver.publisher)
        batch = 0
        while True:
            progress = driver.home.read_progress()
            check_epoch(driver.epoch, progress.newest_epoch)
            start = next((p.next_offset for p in progress.positions.values()), 0)
            if start >= self._orders["until"]:
                return
            with making(FaultPoint.PLANNED):
                plan = plan_batch(
                    progress, {TP: BATCH}, epoch=driver.epoch, spark_batch_id=batch
                )

            coordinator.run_batch(plan, functools.partial(self._stage, driver))
            with making(FaultPoint.SEALED):
                driver.publisher.sweep()
            batch += 1

    def _check_that_nobody_took_over(self, epoch: Epoch) -> None:
        home = PostgresHome(self._orders["home"], self._layout)
        try:
            check_epoch(epoch, home.read_progress().newest_epoch)
        finally:
            home.close()

    def _stage(
        self,
        driver: PostgresDriver,
        plan: BatchPlan,
        rejected: Sequence[RejectedRow],
    ) -> StagedBatch:
        assert not rejected, "the table refuses nothing"
        (covered,) = plan.ranges
        self._attempts += 1
        driver.sequence = plan.sequence
        (output,) = self._layout.outputs
        numbers = range(covered.from_offset, covered.until_offset)
        staged = {}
        for index, branch in enumerate(output.branches):
            rows = [
                (number, TP.topic, TP.partition, number)
                for number in numbers
                if number % len(output.branches) == index
            ]
            table = staged_for(output.staging_table, branch)
            driver.stage_rows(table, rows, attempt=self._attempts)
            staged[table] = len(rows)
        counts = EventCounts(read=covered.length, committed=covered.length)
        vote = Vote(
            attempt=Attempt(self._attempts),
            partitions={
                TP: PartitionTally(
                    counts=counts,
                    offset_min=covered.from_offset,
                    offset_max=covered.until_offset - 1,
                )
            },
            staged=staged,
            outputs={TABLE: OutputTally(events=covered.length, rows=covered.length)},
            checksum=sum(numbers),
        )
        return StagedBatch(votes=[vote], records_read=covered.length)


def _arm(orders: Mapping[str, Any]) -> None:
    """Let the fault happen once, at its point in one batch of the process."""
    fault = orders["fault"]
    point, side = FaultPoint(fault["point"]), Side(fault["side"])
    due = fault.get("batch", 2)
    batches = 0

    def count() -> None:
        nonlocal batches
        batches += 1

    def act() -> None:
        nonlocal batches
        is_due = batches == due or (
            batches == due - 1 and (FaultPoint.PLANNED, Side.BEFORE) == (point, side)
        )
        if not is_due:
            return
        batches = due + 1
        _FAULTS[fault["kind"]](orders)

    if (FaultPoint.PLANNED, Side.BEFORE) == (point, side):

        def count_and_act() -> None:
            act()
            count()

        arm(point, count_and_act, side=side)
        return
    arm(FaultPoint.PLANNED, count, side=Side.BEFORE)
    arm(point, act, side=side)


def _kill(_orders: Mapping[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(_orders: Mapping[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _reset(orders: Mapping[str, Any]) -> None:
    """Break every connection that drivers have, in every database."""
    for dsn in (orders["home"], *orders["databases"].values()):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND application_name LIKE 'tallyweir%'"
            )


def _error(_orders: Mapping[str, Any]) -> None:
    raise RuntimeError(INJECTED)


_FAULTS = {"kill": _kill, "hang": _hang, "reset": _reset, "error": _error}


def _shorten_timeouts() -> None:
    """Let the server end the transaction of a hung driver at once, not in 30 s."""
    for statements in (publish_transaction._SQL, participant._PUBLISH):
        settings = statements["begin_settings"].as_string(None)
        short = settings.replace(
            "idle_in_transaction_session_timeout', '30s'",
            "idle_in_transaction_session_timeout', '500ms'",
        )
        assert short != settings
        statements["begin_settings"] = sql.SQL(short)


def run_light_driver(kind: type[LightDriver]) -> int:
    """Run a driver; exit codes are those of real drivers."""
    orders = json.loads(sys.argv[1])
    if not orders.get("is_patient"):
        _shorten_timeouts()
    if orders.get("fault"):
        _arm(orders)
    try:
        kind(orders).run()
    except TallyweirError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(run_light_driver(LightDriver))
