"""A run's schemas have the same ids after the registry was wiped as before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tallyweir.schemas.codec import decode, encode
from tallyweir.services.dev.chaos.registered_writers import RegisteredWriters
from tallyweir.services.dev.chaos.tests.test_workload import CONTRACT_FILE
from tallyweir.services.local.embedded.apicurio import Apicurio
from tallyweir.sinks.protocol.errors import FatalError


class Registry:
    """Numbers schemas in the order in which they come."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.first_id = 1

    def register(self, _subject: str, schemas: Sequence[str]) -> tuple[int, ...]:
        """Keep them."""
        self.schemas += schemas
        return tuple(range(self.first_id, self.first_id + len(schemas)))

    def wipe(self) -> None:
        """Keep none."""
        self.schemas.clear()


def test_each_part_of_a_run_has_a_schema_that_the_last_one_reads(
    tmp_path: Path,
) -> None:
    """What is in use is kept before a wipe, and what is gone is back before its use."""
    registry, kept = Registry(), set[int]()
    writers = RegisteredWriters(
        cast("Apicurio", registry),
        subject="chaos-events-value",
        contract_file=CONTRACT_FILE,
        folder=tmp_path,
        count=3,
        read_kept=lambda: kept,
    )
    event = dict.fromkeys(("event_id", "site", "note"), "x")
    first = writers.at(0)
    assert 1 == first.schema_id == writers.at(0.3).schema_id
    payload = encode(first, event | {"amount": 1, "happened_at": 0, "only_1": "y"})
    assert "y" == decode(payload, {1: first})["only_1"]

    assert not writers.wipe()
    kept.add(1)
    assert writers.wipe()
    assert 1 == writers.at(0.1).schema_id
    assert not registry.schemas
    assert 2 == writers.at(0.4).schema_id
    assert 3 == len(registry.schemas)

    last = writers.at(1)
    assert 3 == last.schema_id
    assert [] == last.format.find_incompatibilities(last.tree, first.tree)
    kept.update((2, 3))
    assert writers.wipe()
    registry.first_id = 4
    with pytest.raises(FatalError, match="CHAOS_STUCK"):
        writers.restore()
