"""Ready pipelines: parameters are typed, and setting one changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tallyweir.services.local.datasets.made_up import DATASETS
from tallyweir.services.local.templates.template import (
    ParameterType,
    parse_settings,
    read_template,
    template_names,
    write_files,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

#: A value of each type that no template has as its default.
_OTHER = {
    ParameterType.TOPIC: "other.topic-1",
    ParameterType.TABLE: "other.table_1",
    ParameterType.NAME: "other-name",
    ParameterType.DURATION: "17 minutes",
    ParameterType.NUMBER: "17",
}


@pytest.mark.parametrize("name", template_names())
def test_a_template_without_settings_is_its_pipeline_file(name: str) -> None:
    """To the byte, so that what is tested is what runs."""
    template = read_template(name)
    assert template.render({}) == template.file.read_text("utf-8")
    assert template.dataset in DATASETS
    assert all(file.is_file() for file in template.companions)


@pytest.mark.parametrize("name", template_names())
def test_each_parameter_changes_its_places_and_nothing_else(name: str) -> None:
    """All of them together, too."""
    template = read_template(name)
    for parameter in template.parameters:
        value = _OTHER[parameter.type]
        lines = template.render({parameter.name: value}).splitlines()
        former = template.file.read_text("utf-8").splitlines()
        changed = [
            (before, after)
            for before, after in zip(former, lines, strict=True)
            if before != after
        ]
        assert 1 <= len(changed) <= len(parameter.places), parameter.name
        for before, after in changed:
            assert before.replace(parameter.default, value, 1) == after
    everything = {p.name: _OTHER[p.type] for p in template.parameters}
    rendered = template.render(everything)
    if template.file.suffix == ".py":
        compile(rendered, template.file.name, "exec")
    else:
        assert yaml.safe_load(rendered)


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("window=5 apples", "PARAMETER_VALUE"),
        ("table=views; DROP TABLE x", "PARAMETER_VALUE"),
        ("topic=a: b", "PARAMETER_VALUE"),
        ("windw=5 minutes", "PARAMETER_UNKNOWN"),
        ("window", "PARAMETER_VALUE"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, code: str) -> None:
    """Also one that YAML would read as something else."""
    with pytest.raises(ConfigurationError) as refusal:
        read_template("page-views").render(parse_settings([setting]))
    assert refusal.value.code == code


def test_an_unknown_template_is_answered_with_the_known_ones() -> None:
    """There is nothing to guess."""
    with pytest.raises(ConfigurationError, match="page-views"):
        read_template("page-view")


def test_files_that_are_there_are_left_alone(tmp_path: Path) -> None:
    """None of the files is written then."""
    (tmp_path / "b.sql").write_text("mine")
    with pytest.raises(ConfigurationError, match="FILE_EXISTS"):
        write_files(tmp_path, {"a.yaml": b"a", "b.sql": b"b"}, replace=False)
    assert [path.name for path in tmp_path.iterdir()] == ["b.sql"]
    write_files(tmp_path, {"a.yaml": b"a", "b.sql": b"b"}, replace=True)
    assert (tmp_path / "b.sql").read_text() == "b"
