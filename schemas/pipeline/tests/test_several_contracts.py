"""Pipeline files with several contracts: one list, and each mistake on its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import Pipeline, PipelineError, load_pipeline

_VALID = """\
pipeline: p
source:
  topic: t
  schema:
    - flight_departure.v1
    - gate.v1.avsc
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
outputs:
  - append: {table: a, where: gate IS NOT NULL}
"""
_INSTANT = {"type": "long", "logicalType": "timestamp-micros"}


def _load(folder: Path, text: str, **types: object) -> Pipeline:
    """Read a file beside the contract of a gate, whose fields may have other types."""
    gate = {"event_id": "string", "scheduled_at": _INSTANT, "gate": "string", **types}
    fields = [{"name": name, "type": kind} for name, kind in gate.items() if kind]
    schema = {"type": "record", "name": "Gate", "fields": fields}
    (folder / "gate.v1.avsc").write_text(json.dumps(schema))
    path = folder / "p.yaml"
    path.write_text(text)
    return load_pipeline(path)


def _problems(folder: Path, text: str, **types: object) -> list[tuple[int, str, str]]:
    with pytest.raises(PipelineError) as caught:
        _load(folder, text, **types)
    return [
        (int(place.rpartition(":")[2]), problem.code, problem.fix)
        for place, problem in zip(
            caught.value.places, caught.value.problems, strict=True
        )
    ]


def test_a_list_of_contracts_is_one_event(tmp_path: Path) -> None:
    """It has the columns of all; one in a list is the same as one alone."""
    both = ("flight_departure.v1", "gate.v1.avsc")
    assert both == _load(tmp_path, _VALID).source.schemas
    single, listed = (
        _load(tmp_path, _VALID.replace(_LISTED, f"  schema: {schema}\n"))
        for schema in ("gate.v1.avsc", "[gate.v1.avsc]")
    )
    assert single == listed
    assert "gate.v1.avsc" == listed.source.schema


_LISTED = _VALID[_VALID.index("  schema:") : _VALID.index("  event_id:")]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (_LISTED, "  schema: []\n", (4, "PIPELINE_VALUE", "Fill it in.")),
        (_LISTED, "  schema: [a, 7]\n", (4, "PIPELINE_VALUE", 'Quote it: "7".')),
        ("gate.v1", "gates.v1", (6, "CONTRACT_MISSING", "Correct the path")),
        ("- flight", "- flihgt", (5, "CONTRACT_MISSING", "Write flight_departure")),
        ("gate.v1.avsc", "flight_departure.v1", (6, "PIPELINE_DUPLICATE_NAME", "one")),
        ("gate.v1.avsc", "page_view.v1", (8, "PIPELINE_UNKNOWN_COLUMN", "alias")),
        ("where: gate", "where: gat", (11, "PIPELINE_UNKNOWN_COLUMN", "Write gate.")),
        ("gate IS NOT", "kafka_topc IS NOT", (11, "PIPELINE_UNKNOWN_COLUMN", "_topic")),
        (
            "outputs:",
            "deduplicate:\n  horizon: 1 day\n  conflicts: false\noutputs:",
            (12, "PIPELINE_CONFLICTS", "Leave conflicts out"),
        ),
    ],
)
def test_a_mistake_is_found_on_its_line(
    tmp_path: Path, old: str, new: str, expected: tuple[int, str, str]
) -> None:
    """One edit to a valid file gives its own code, line and remedy."""
    assert _VALID.count(old) == 1, "the edit must be unambiguous"
    line, code, fix = expected
    found = _problems(tmp_path, _VALID.replace(old, new))
    assert (line, code) == found[0][:2], found
    assert fix in found[0][2]


def test_contracts_that_differ_are_refused_on_the_line_of_the_list(
    tmp_path: Path,
) -> None:
    """Neither of them is wrong alone; the columns are not judged meanwhile."""
    text = _VALID.replace("gate IS NOT", "gat IS NOT")
    ((line, code, fix),) = _problems(tmp_path, text, origin="int")
    assert (4, "CONTRACTS_DIFFER") == (line, code)
    assert "alias" in fix


def test_each_contract_has_the_id_and_the_time(tmp_path: Path) -> None:
    """The error names the one that lacks them; an ID in a header is in none."""
    lacking = {"scheduled_at": None, "event_id": None, "other": "int"}
    code = "PIPELINE_UNKNOWN_COLUMN"
    found = _problems(tmp_path, _VALID, **lacking)
    assert [(7, code), (8, code)] == [one[:2] for one in found]
    by_header = _VALID.replace("event_id: event_id", "event_id: header:ce_id")
    assert [(8, code)] == [one[:2] for one in _problems(tmp_path, by_header, **lacking)]
