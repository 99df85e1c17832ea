"""Thousands of damaged payloads through a real driver, and each meets its fate."""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import pytest

from integration_tests.harness.damaged_payloads import (
    ANY_REASON,
    FLAT,
    NESTED,
    EventKind,
    damaged_payloads,
    with_fates,
)
from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import Sent, write_contract
from tallyweir.schemas.codec import encode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

#: 100,000 before a release; ``TALLYWEIR_FUZZ_PAYLOADS`` says how many.
_PAYLOADS = int(os.environ.get("TALLYWEIR_FUZZ_PAYLOADS", "5000"))
#: Part of the tests' names, which pytest prints; the same seed damages the same way.
_SEED = int(os.environ.get("TALLYWEIR_FUZZ_SEED", random.randrange(1 << 32)))
_PARTITIONS = 2
_BATCH_OFFSETS_MAX = 5_000
_READ_TIMEOUT_S = 1_800

_PIPELINE = """
    pipeline: readings
    source:
      topic: {topic}
      schema: damaged.v1.avsc
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    deduplicate: {{horizon: 36500 days}}
    outputs:
      - append: {{table: readings}}
"""
_HORIZON = dt.timedelta(days=36_500, hours=1)
_FUTURE_BOUND = dt.timedelta(days=1)

#: What Spark logs when a worker dies or a task fails, whether or not it runs again.
_BROKEN_TASK = re.compile(r"Lost task|crashed|exited unexpectedly|EOFException| ERROR ")


@pytest.mark.parametrize("seed", [_SEED])
@pytest.mark.parametrize(
    "kind",
    [pytest.param(FLAT, marks=pytest.mark.long), NESTED],
    ids=lambda kind: kind.name,
)
def test_damaged_payloads_meet_their_fates_and_kill_no_worker(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, kind: EventKind, seed: int
) -> None:
    """Dead are those that the strict decoder refuses, for its reason, and no others."""
    chance = random.Random(seed)
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=_PARTITIONS)
    contract = write_contract(tmp_path / "damaged.v1.avsc", kind.schema)
    world.write_pipeline(_PIPELINE)
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    # An event of today in each partition: what expires depends on no other event.
    today = [
        Sent(
            value=encode(contract, {**kind.make_record(chance), "at": now}),
            partition=partition,
        )
        for partition in range(_PARTITIONS)
    ]
    payloads = damaged_payloads(contract, kind.make_record, chance)
    records = with_fates(
        list(islice(payloads, _PAYLOADS // 2)),
        contract,
        partitions=_PARTITIONS,
        oldest=now - _HORIZON,
        latest=now + _FUTURE_BOUND,
    )
    fates = Counter(record.fate for record in records)
    assert min(fates["committed"], fates["MALFORMED"]) > len(records) / 10, fates
    everything = world.topic.send(today)
    # Spark's tasks decode them, or the driver itself does.
    small = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": str(chance.choice((0, 20_000)))}
    with world.driver(batch=_BATCH_OFFSETS_MAX, environment=small) as driver:
        world.await_read(len(everything))
        everything |= world.topic.send(records)
        world.await_value(
            "SELECT sum(read) FROM tallyweir.batch_partition",
            lambda read: read == len(everything),
            timeout_s=_READ_TIMEOUT_S,
        )
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text

    world.assert_fates(_with_found_reasons(everything, world.fates()))
    ends = Counter(partition for partition, _ in everything)
    assert dict(ends) == dict(
        world.fetch("SELECT partition, next_offset FROM tallyweir.partition_progress")
    )
    assert "starting over" not in driver.text
    log = (world.state / "logs" / "readings.spark.log").read_text()
    assert not [line for line in log.splitlines() if _BROKEN_TASK.search(line)]


def _with_found_reasons(
    everything: Mapping[tuple[int, int], Sent], found: Mapping[tuple[int, int], str]
) -> dict[tuple[int, int], Sent]:
    """Expect the reason that was found, where any reason will do."""
    alive = {"committed", "duplicate", "expired"}
    return {
        position: Sent(value=record.value, fate=found[position])
        if record.fate == ANY_REASON and found.get(position, "committed") not in alive
        else record
        for position, record in everything.items()
    }
