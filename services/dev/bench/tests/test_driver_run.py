"""A driver that ends before its time, under measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallyweir.services.dev.bench.world.bench_world import PAGE_VIEWS, incomplete_run
from tallyweir.services.dev.bench.world.driver_run import running_driver
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.protocol.errors import FatalError

_NOWHERE = Endpoints(kafka_bootstrap="localhost:1", home_dsn="host=localhost port=1")


def _measure(file: Path) -> None:
    with running_driver(_NOWHERE, replace(PAGE_VIEWS, file=file)) as driver:
        with pytest.raises(FatalError, match="DRIVER_FAILED"):
            driver.next_event(60)
        raise incomplete_run("The ledger holds nothing.", fix="-")


def test_a_driver_that_ended_is_told_with_its_last_words(tmp_path: Path) -> None:
    """Who measures need not look for its log to know why there is no figure."""
    with pytest.raises(FatalError, match="BENCH_INCOMPLETE") as raised:
        _measure(tmp_path / "missing.yaml")
    assert "The ledger holds nothing." in raised.value.saw
    assert "missing.yaml" in raised.value.saw
