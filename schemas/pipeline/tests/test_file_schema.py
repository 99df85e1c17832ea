"""The JSON Schema of pipeline files: what editors accept and underline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from yaml.constructor import SafeConstructor
from yaml.nodes import ScalarNode

from tallyweir.schemas.pipeline.document.yaml_tree import (
    YamlList,
    YamlMap,
    YamlScalar,
    YamlValue,
    read_tree,
)
from tallyweir.schemas.pipeline.file_schema import pipeline_file_schema
from tallyweir.schemas.pipeline.tests.pipelines import SHIPPED
from tallyweir.schemas.pipeline.tests.test_pipeline_file import VALID

_ROOT = Path(__file__).parents[3]
_SHIPPED = [p for p in SHIPPED.glob("*.yaml") if not p.name.endswith(".template.yaml")]
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Files of rules for alerts are described elsewhere.
_EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in sorted([*_ROOT.glob("docs/**/*.md"), _ROOT / "README.md"])
    for number, block in enumerate(_BLOCK.findall(page.read_text("utf-8")))
    # Configurations of other programs, and cases of tests.
    if page.name != "alerts.md" and not block.startswith("lookups:")
]


def _values(value: YamlValue) -> Any:  # noqa: ANN401 - any JSON
    """Return a tree as an editor sees it, with the keys as they are written."""
    if isinstance(value, YamlScalar):
        node = ScalarNode(f"tag:yaml.org,2002:{value.kind}", value.text)
        return SafeConstructor().construct_object(node)
    if isinstance(value, YamlList):
        return [_values(one) for one in value]
    return {key: _values(one) for key, one in value.items()}


def _errors(folder: Path, text: str) -> list[str]:
    path = folder / "p.yaml"
    path.write_text(text, "utf-8")
    tree: YamlMap = read_tree(path)[0]
    found = Draft202012Validator(pipeline_file_schema()).iter_errors(_values(tree))
    return [f"{error.json_path}: {error.message}" for error in found]


def test_it_is_a_json_schema() -> None:
    """Of the draft that it names."""
    Draft202012Validator.check_schema(pipeline_file_schema())


@pytest.mark.parametrize("file", _SHIPPED, ids=lambda file: file.name)
def test_shipped_pipelines_conform(tmp_path: Path, file: Path) -> None:
    """Editors underline nothing in them."""
    assert [] == _errors(tmp_path, file.read_text("utf-8"))


@pytest.mark.parametrize("example", _EXAMPLES)
def test_examples_of_the_pages_conform(tmp_path: Path, example: str) -> None:
    """Those that show only some keys, beside the others of a valid file."""
    keys = set(re.findall(r"^(\w+):", example, re.MULTILINE))
    parts = re.split(r"^(?=\w+:)", VALID, flags=re.MULTILINE)
    others = [part for part in parts if part.partition(":")[0] not in keys]
    assert [] == _errors(tmp_path, "".join([*others, example]))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("topic: t", "topics: t", "$.source"),
        ("topic: t", "topic: 7", "$.source.topic"),
        ("2 hours", "7200", "$.source.watermark_delay"),
        ("2 hours", "2", "$.source.watermark_delay"),
        ("pipeline: p\n", "", "$"),
        ("by: [origin]", "by: origin", "$.outputs[1].window.by"),
        ("by: [origin]", "late: later", "$.outputs[1].window.late"),
        ("fixed: 1 hour", "early: off", "$.outputs[1].window"),
        ("fixed: 1 hour", "fixed:", "$.outputs[1].window.fixed"),
        ("- append: {table: a}", "- {}", "$.outputs[0]"),
        ("outputs:", "deduplicate: on\noutputs:", "$.deduplicate"),
    ],
)
def test_a_wrong_file_does_not(tmp_path: Path, old: str, new: str, place: str) -> None:
    """The mistake is underlined where it is."""
    assert 1 == VALID.count(old)
    errors = _errors(tmp_path, VALID.replace(old, new))
    assert {place} == {error.partition(": ")[0] for error in errors}, errors


def test_keys_are_described_in_the_words_of_the_model() -> None:
    """Editors show them beside the key."""
    source = pipeline_file_schema()["$defs"]["SourceKeys"]["properties"]
    assert (
        "The column or header with the producer's ID, ``PositionId()``, or a tuple of "
        "columns and headers, whose values are the ID together."
        == (source["event_id"]["description"])
    )
    assert "1 minute" == source["idle_timeout"]["default"]
