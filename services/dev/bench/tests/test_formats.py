"""What each format costs is told by medians of several turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tallyweir.schemas.contract import REGISTRY, load_contract
from tallyweir.schemas.pipeline.pipeline_file import load_pipeline
from tallyweir.services.dev.bench import formats
from tallyweir.services.dev.bench.formats import FORMATS, figures_of
from tallyweir.services.dev.bench.world import bench_world
from tallyweir.services.dev.bench.world.driver_run import Rates
from tallyweir.services.local.datasets.page_views import CONTRACT
from tallyweir.services.local.embedded.apicurio import Apicurio

_TURNS = [
    {
        "avro": Rates(cold=100, warm=warm),
        "json": Rates(cold=cold, warm=150),
    }
    for cold, warm in ((90, 200), (50, 300), (70, 150))
]


def test_the_ratio_to_avro_is_the_median_over_the_turns() -> None:
    """A ratio to a peer is that of the median."""
    figures: dict[str, Any] = figures_of(_TURNS, {"flink": Rates(cold=35, warm=50)})
    json = figures["formats"]["json"]
    assert (0.7, 0.75) == (json["cold_ratio"], json["ratio"])
    assert (70, 150) == (json["cold_events_per_second"], json["events_per_second"])
    assert [90, 50, 70] == [one["cold_events_per_second"] for one in json["runs"]]
    flink = figures["peers"]["flink"]
    assert (2.0, 3.0) == (flink["cold_ratio"], flink["ratio"])


def test_each_format_has_a_pipeline_with_the_same_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the rows that are written do not differ."""
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr(bench_world, "state_directory", lambda: tmp_path)
    columns = []
    for name in FORMATS.keys() - {REGISTRY}:
        file = formats._pipeline(name, name).file
        (contract,) = load_pipeline(file).source.schemas
        columns.append([one.name for one in load_contract(contract).fields])
    assert columns == [columns[0]] * (len(FORMATS) - 1)


def test_the_registry_has_the_contract_of_avro(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And payloads the id that it gave, so that only the framing differs."""
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr(formats, "state_directory", lambda: tmp_path)

    class Registry:
        """Gives the id 5."""

        def register(self, subject: str, schemas: list[str]) -> tuple[int, ...]:
            assert "bench-page-views-registry-value" == subject
            return (5 * len(schemas),)

    contract = load_contract(formats._registered(cast("Apicurio", Registry())))
    assert 5 == contract.schema_id
    assert load_contract(CONTRACT).fields == contract.fields
