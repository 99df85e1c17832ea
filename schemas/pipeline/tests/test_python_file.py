"""Pipelines that are Python files: what is run, refused, and written down of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    PipelineError,
    definition_hash,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

_FILE = """
from datetime import timedelta
from tallyweir import Append, Pipeline, Source

LIMIT = 10

def transform(events):
    return events.withColumn("doubled", events["value"] * 2)

pipeline = Pipeline(
    name="views",
    source=Source(
        topic="page-views",
        schema="page_view.v1",
        event_id="event_id",
        event_time="viewed_at",
        watermark_delay=timedelta(minutes=1),
    ),
    transform=transform,
    outputs=(Append(table="views", columns=("event_id", "doubled")),),
)
"""


def _write(folder: Path, text: str = _FILE, name: str = "views.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_python_file_gives_the_pipeline_that_it_defines(tmp_path: Path) -> None:
    """Columns that only its transform makes are not judged before Spark runs it."""
    pipeline = load_pipeline(_write(tmp_path))
    assert "views" == pipeline.name
    assert pipeline.transform is not None


def test_the_definition_changes_with_the_source_and_with_nothing_else(
    tmp_path: Path,
) -> None:
    """The ledger knows which code a batch ran under, wherever the file lies."""
    (tmp_path / "elsewhere").mkdir()
    first = load_pipeline(_write(tmp_path))
    moved = load_pipeline(_write(tmp_path / "elsewhere"))
    changed = load_pipeline(_write(tmp_path, _FILE.replace("* 2", "* 3")))
    assert definition_hash(first) == definition_hash(moved)
    assert definition_hash(first) != definition_hash(changed)
    with pytest.raises(ValueError, match="functions"):
        from_json(pipeline_definition_json(first))


def test_a_module_beside_the_file_belongs_to_its_source(tmp_path: Path) -> None:
    """What the functions call is code of the pipeline as well."""
    hashes = set()
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        _write(folder, f"FACTOR = {number}\n", "factors.py")
        text = f"import factors\n{_FILE}".replace("* 2", "* factors.FACTOR")
        hashes.add(load_pipeline(_write(folder, text)).code_version)
    assert 2 == len(hashes)


def test_each_file_imports_the_modules_of_its_own_folder(tmp_path: Path) -> None:
    """A process may load several files, whose modules may share their names."""
    paths = []
    for topic in ("of_one", "of_two"):
        folder = tmp_path / topic
        folder.mkdir()
        _write(folder, f"NAME = '{topic}'\n", "names.py")
        text = f"import names\n{_FILE}".replace('"views"', "names.NAME")
        paths.append(_write(folder, text))
    loaded = [load_pipeline(path) for path in (*paths, *paths)]
    assert ["of_one", "of_two"] * 2 == [pipeline.name for pipeline in loaded]
    assert loaded[0].code_version == loaded[2].code_version
    assert loaded[1].code_version == loaded[3].code_version


def test_a_version_of_the_users_own_stands(tmp_path: Path) -> None:
    """Who names his versions is asked for nothing else."""
    text = _FILE.replace("transform=transform", 'transform=transform, code_version="7"')
    first = load_pipeline(_write(tmp_path, text))
    other = load_pipeline(_write(tmp_path, text.replace("* 2", "* 3")))
    assert "7" == first.code_version
    assert definition_hash(first) == definition_hash(other)


@pytest.mark.parametrize(
    ("text", "code", "quoted"),
    [
        ("1 / 0", "PIPELINE_CODE_FAILED", "views.py:1 in <module>: 1 / 0"),
        ("def (", "PIPELINE_CODE_FAILED", "SyntaxError"),
        ("import sys\nsys.exit(3)", "PIPELINE_CODE_FAILED", "SystemExit: 3"),
        ("import no_such_module_here", "PIPELINE_CODE_FAILED", "no_such_module_here"),
        ("pipelines = 1", "PIPELINE_NOT_DEFINED", "NoneType"),
        ("pipeline = 1", "PIPELINE_NOT_DEFINED", "int"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_last_lines(
    tmp_path: Path, text: str, code: str, quoted: str
) -> None:
    """No stack trace of ours, but where the user's code failed."""
    with pytest.raises(ConfigurationError) as raised:
        load_pipeline(_write(tmp_path, text))
    assert code == raised.value.code
    assert quoted in raised.value.saw


def test_mistakes_in_the_parts_are_the_usual_errors(tmp_path: Path) -> None:
    """What a YAML file is refused for, a Python file is refused for."""
    text = _FILE.replace('event_time="viewed_at"', 'event_time="seen_at"')
    with pytest.raises(PipelineError) as raised:
        load_pipeline(_write(tmp_path, text))
    assert "PIPELINE_UNKNOWN_COLUMN" == raised.value.code


_WRONG = """
from datetime import timedelta
from tallyweir import (
    Aggregate, AggregateFunction, Append, Fixed, Pipeline, Rule, Source,
    Window,
)

FLIGHTS = Aggregate(column="pane", function=AggregateFunction.COUNT)
pipeline = Pipeline(
    name="Views",
    source=Source(
        topic="a/b",
        schema="page_view.v1",
        event_id="event_id",
        event_time="seen_at",
        watermark_delay=timedelta(minutes=1),
    ),
    validate=(Rule(reason_code="far", condition="value >"),),
    outputs=(
        Window(
            table="w",
            windows=Fixed(size=timedelta(0), time_zone="Europe/Berlyn"),
            by=("contry",),
            aggregates=(FLIGHTS,),
        ),
    ),
)
"""


def test_all_mistakes_of_a_file_are_one_error(tmp_path: Path) -> None:
    """Each with its line, though the parts are built one after the other."""
    with pytest.raises(PipelineError) as raised:
        load_pipeline(_write(tmp_path, _WRONG))
    assert raised.value.places == (
        "views.py:8 Aggregate",
        "views.py:11 Source.topic",
        "views.py:18 Rule",
        "views.py:18 Rule",
        "views.py:22 Fixed.size",
        "views.py:22 Fixed.time_zone",
        "views.py:9 Pipeline.name",
        "Pipeline.source.event_time",
        "Pipeline.outputs[0].by[0]",
    )


def test_values_of_a_wrong_type_are_mistakes_like_others(tmp_path: Path) -> None:
    """They are told beside the rest, and not as errors of our own code."""
    text = _WRONG.replace("size=timedelta(0)", 'size="1 hour"')
    text = text.replace("aggregates=(FLIGHTS,)", "aggregates=FLIGHTS")
    text = text.replace("timedelta(minutes=1)", "60").replace('"a/b"', "7")
    with pytest.raises(PipelineError) as raised:
        load_pipeline(_write(tmp_path, text))
    told = dict(zip(raised.value.places, raised.value.problems, strict=True))
    assert {"views.py:8 Aggregate", "views.py:18 Rule"} < told.keys()
    assert told["views.py:22 Fixed.size"].saw == "size is '1 hour', a str."
    for part in ("views.py:11 Source", "views.py:20 Window"):
        assert "has the wrong type" in told[part].saw


def test_a_wrong_part_goes_before_what_fails_for_it(tmp_path: Path) -> None:
    """Code of the file may go on with it."""
    text = _WRONG.replace("pipeline = ", "1 / 0\npipeline = ")
    with pytest.raises(PipelineError) as raised:
        load_pipeline(_write(tmp_path, text))
    assert raised.value.places == ("views.py:8 Aggregate",)


def test_a_contract_is_told_of_beside_the_parts(tmp_path: Path) -> None:
    """Each of its faults."""
    (tmp_path / "e.v1.avsc").write_text(
        '{"type": "record", "name": "E", "fields": ['
        '{"name": "a-b", "type": "int"}, {"name": "c", "type": "money"}]}'
    )
    text = _WRONG.replace("page_view.v1", "e.v1.avsc")
    with pytest.raises(PipelineError) as raised:
        load_pipeline(_write(tmp_path, text))
    assert ("Pipeline.source.schema",) * 2 == raised.value.places[-2:]


def test_a_value_of_a_type_that_nothing_checks_is_told_like_a_failure(
    tmp_path: Path,
) -> None:
    """It has a code, and no stack trace of ours ends a driver or a command."""
    text = _FILE.replace('schema="page_view.v1"', 'schema=("page_view.v1", 5)')
    with pytest.raises(ConfigurationError, match="PIPELINE_CODE_FAILED"):
        load_pipeline(_write(tmp_path, text))
