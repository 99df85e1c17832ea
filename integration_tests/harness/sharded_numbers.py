"""A pipeline of numbers that are spread over two databases, and its tables there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    TP,
    PostgresDriver,
    Row,
    layout_of,
)
from tallyweir.sinks.faultpoints import FaultPoint, Side, arm, disarm_all
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import BatchTally

_NUMBERS = AppendTable(
    table="numbers",
    staging_table="output_0",
    event_columns=(Column(name="number", postgres_type="bigint"),),
    branches=(HOME, "billing.0"),
)


def with_definition(
    layout: PipelineLayout, outputs: Sequence[object]
) -> PipelineLayout:
    """Give a layout the definition that the audits read, with these outputs in it."""
    definition = {
        "format": 1,
        "name": PIPELINE,
        "source": {
            "topic": TP.topic,
            "schema": "number.v1",
            "event_id": {"field": "number"},
            "event_time": "at",
        },
        "deduplicate": None,
        "outputs": outputs,
    }
    return replace(layout, definition=json.dumps(definition))


def sharded_layout() -> PipelineLayout:
    """Describe the pipeline, its numbers in the home and in billing."""
    output = {
        "kind": "append",
        "table": "numbers",
        "columns": None,
        "databases": [HOME, "billing"],
        "shard_by": ["number"],
    }
    return with_definition(layout_of(_NUMBERS), [output])


def start_driver(home_dsn: str, billing_dsn: str) -> PostgresDriver:
    """Claim an epoch, and finish what was in doubt."""
    return PostgresDriver(
        dsn=home_dsn, layout=sharded_layout(), databases={"billing": billing_dsn}
    )


def stage_three(driver: PostgresDriver, first: int) -> tuple[BatchPlan, BatchTally]:
    """Stage three numbers from ``first`` on; the one between goes to the home."""
    plan = driver.plan(3)
    rows: Sequence[Row] = driver.positioned(plan, [(first + n,) for n in range(3)])
    staged = {"output_0": rows[1:2], "output_0@billing.0": [rows[0], rows[2]]}
    return plan, driver.stage(plan, staged)


def publish_three(driver: PostgresDriver, first: int) -> None:
    """Publish what ``stage_three`` stages."""
    driver.publish(*stage_three(driver, first))


def stop(driver: PostgresDriver) -> None:
    """Close what a driver has open, as its death would."""
    driver.home.close()
    for participant in driver.participants.values():
        participant.close()


class _KilledError(BaseException):
    """The driver's process died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Two batches, of the numbers 0 to 2 and 3 to 5; 1 and 4 are in the home."""

    home: str
    billing: str
    connection: psycopg.Connection[TupleRow]

    @property
    def databases(self) -> Mapping[str, str]:
        return {"billing": self.billing}

    def kill_after_decision(self) -> None:
        """Publish the numbers 6 to 8 until they are decided, and die there."""
        driver = start_driver(self.home, self.billing)

        def die() -> None:
            raise _KilledError

        arm(FaultPoint.DECISION_COMMITTED, die, side=Side.AFTER)
        with pytest.raises(_KilledError):
            publish_three(driver, 6)
        disarm_all()
        stop(driver)


def no_fingerprints(_key: bytes, _event_id: str) -> tuple[bytes, ...]:
    """Stand in for fingerprints where there is no catalog."""
    return ()
