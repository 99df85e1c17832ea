"""A slice is opened from its directory alone; what is none is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import load_pipeline
from tallyweir.sinks.postgres.tables.table_definition import TableDefinition
from tallyweir.sinks.protocol.batch_run import BatchRun, RunInput
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.notebook import open_slice
from tallyweir.spark_jobs.notebook.captured_slice import (
    MANIFEST,
    CapturedLookup,
    CapturedRange,
    SliceManifest,
)

_ROOT = Path(__file__).parents[3]
_EXAMPLE = _ROOT / "docs" / "examples" / "notebook" / "views-notebook"


def test_the_examples_slice_opens_without_a_server() -> None:
    """Its records, its lookup as it was, and its pipeline beside it."""
    captured = open_slice(_EXAMPLE)
    records = captured.records()
    assert len(records) == captured.ranges()["records"].sum() == 50
    assert records["value"].notna().all()
    pipeline = load_pipeline(captured.pipeline_file)
    rows, version = captured.lookup_reader(pipeline.enrich[0])()
    assert rows.num_rows == 4
    assert version.startswith("4 rows")


def test_a_lookup_that_was_not_captured_is_refused(tmp_path: Path) -> None:
    """The pipeline's file has changed since."""
    file = tmp_path / "views.yaml"
    text = (_EXAMPLE.parent / "views.yaml").read_text()
    file.write_text(text.replace("{region: region}", "{region: name}"))
    (changed,) = load_pipeline(file).enrich
    with pytest.raises(ConfigurationError, match="SLICE_LACKS_LOOKUP"):
        open_slice(_EXAMPLE).lookup_reader(changed)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    """With everything that it may hold."""
    manifest = SliceManifest(
        pipeline="p",
        pipeline_file="../p.yaml",
        definition_hash="h",
        captured_at="2024-05-01T00:00:00+00:00",
        ranges=(
            CapturedRange(
                topic="batch:r",
                topic_id="r",
                partition=0,
                from_offset=0,
                until_offset=9,
                records=8,
            ),
        ),
        lookups=(
            CapturedLookup(
                label="l", columns={"a": "b"}, version="1", file="l.parquet"
            ),
        ),
        tables={
            "home": (
                TableDefinition(
                    table="t",
                    columns=(("a", "text NOT NULL"),),
                    constraints=(("t_a_key", "UNIQUE (a)"),),
                    indexes=("CREATE UNIQUE INDEX i ON public.t USING btree (a)",),
                    left_out=("trigger x",),
                ),
            )
        },
        run=BatchRun(
            name="r", inputs=(RunInput(partition=0, name="f.csv", checksum="c"),)
        ),
    )
    manifest.write(tmp_path)
    assert manifest == SliceManifest.read(tmp_path)


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    """Although all that this one reads is there."""
    fields = json.loads((_EXAMPLE / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(fields | {"version": 2}))
    with pytest.raises(ConfigurationError, match="SLICE_MALFORMED"):
        open_slice(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    """Whatever else is there."""
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(ConfigurationError, match="SLICE_MALFORMED"):
        open_slice(tmp_path)


def test_a_directory_without_a_slice_is_refused(tmp_path: Path) -> None:
    """Whether or not there is something else in it."""
    (tmp_path / "records.parquet").write_text(json.dumps({}))
    with pytest.raises(ConfigurationError, match="SLICE_MISSING"):
        open_slice(tmp_path)
