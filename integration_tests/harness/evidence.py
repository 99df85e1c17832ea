"""What shows the bottleneck of a driver at work, batch after batch."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import Sent
from tallyweir.sinks.diagnosis.batch_time import MeasuredBatch
from tallyweir.sinks.diagnosis.bottleneck import (
    BATCHES_MIN,
    Bottleneck,
    Cause,
    ServerFacts,
    rank_causes,
)
from tallyweir.sinks.postgres.audit import read_evidence
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.measures import measures_json

#: Names the folder that evidence is written to, for the unit tests of the rules.
RECORD_VARIABLE = "TALLYWEIR_RECORD_EVIDENCE"

_DEADLINE_S = 150.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What there was to go by at one moment."""

    batches: tuple[MeasuredBatch, ...]
    server: ServerFacts

    @property
    def lag(self) -> int:
        """How many records wait."""
        assert self.server.lag is not None
        return self.server.lag

    @property
    def causes(self) -> list[Bottleneck]:
        """What is named, and what would be next."""
        return rank_causes(self.batches, self.server)

    @property
    def cause(self) -> Cause | None:
        """What is named."""
        return self.causes[0].cause if self.causes else None

    def record(self, cause: Cause) -> None:
        """Keep it for the unit tests, if somebody has asked for that."""
        folder = os.environ.get(RECORD_VARIABLE)
        if folder is None:
            return
        batches = [
            {
                "sequence": one.sequence,
                "read": one.read,
                "committed": one.committed,
                "dead": one.dead,
                "measures": measures_json(one.measures),
            }
            for one in self.batches
        ]
        # A line for each batch, for people who compare them.
        lines = ",\n".join(map(json.dumps, batches))
        server = json.dumps(asdict(self.server))
        file = Path(folder) / f"{cause.replace(' ', '-')}.json"
        file.write_text(f'{{"server": {server},\n"batches": [\n{lines}\n]}}\n')


def evidence_of(dsn: str, pipeline: str, lag: int) -> Evidence:
    """Read what there is at this moment."""
    with connect(dsn, application_name="test reader") as home:
        batches, server = read_evidence(home, pipeline, lag=lag)
    return Evidence(batches=batches, server=server)


def each_look(world: DriverWorld, records: Sequence[Sent]) -> Iterator[Evidence]:
    """Look after each batch from the third on, for as long as the caller wants.

    Args:
        world: Whose driver is at work.
        records: What was sent to it so far.
    """
    seen, ends_at = BATCHES_MIN - 1, time.monotonic() + _DEADLINE_S
    while time.monotonic() < ends_at:
        batches, read = world.fetch(
            "SELECT count(DISTINCT sequence), coalesce(sum(read), 0)::bigint "
            "FROM tallyweir.batch_partition"
        )[0]
        if batches > seen:
            seen = batches
            yield evidence_of(world.home_dsn, "readings", len(records) - read)
        time.sleep(_POLL_S)
    raise AssertionError(f"{seen} batches of {len(records)} records in time")


def assert_named(looks: Sequence[Evidence], cause: Cause) -> None:
    """Assert that three batches named a cause, and that later ones did not waver."""
    first = looks[0]
    three = Evidence(batches=first.batches[:BATCHES_MIN], server=first.server)
    told = [
        ", ".join(f"{one.cause} {one.share:.0%}" for one in look.causes)
        for look in (three, *looks)
    ]
    print(*told, sep="\n")  # noqa: T201 - shown when the test fails
    assert three.cause is cause
    three.record(cause)
    named = Counter(look.cause for look in looks)
    assert named[cause] >= 0.9 * len(looks), named
