"""An output's rows stay in one place for as long as the pipeline has its name."""

from __future__ import annotations

from typing import Any

import pytest

from tallyweir.sinks.postgres.versions.comparison import find_moved


def _definition(**place: object) -> dict[str, Any]:
    return {"outputs": [{"table": "a"}, {"table": "t", **place}]}


_SHARDED = {"databases": ["home", "b"], "shard_by": ["x"]}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {}),
        ({}, {"databases": ["home"]}),
        ({"databases": ["b"]}, {"databases": ["b"], "branches": 4}),
        (_SHARDED, _SHARDED),
    ],
)
def test_an_output_may_stay(before: dict[str, Any], now: dict[str, Any]) -> None:
    """How many transactions publish it does not say where it is."""
    assert not find_moved(_definition(**before), _definition(**now)).findings


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {"databases": ["b"]}),
        ({"databases": ["b"]}, {}),
        ({"databases": ["b"]}, _SHARDED),
        (_SHARDED, {"databases": ["b", "home"], "shard_by": ["x"]}),
        (_SHARDED, {"databases": ["home", "b"], "shard_by": ["y"]}),
        (_SHARDED, {"databases": ["home", "b", "c"], "shard_by": ["x"]}),
    ],
)
def test_an_output_may_not_move(before: dict[str, Any], now: dict[str, Any]) -> None:
    """The order of databases counts: a row's place is a position in the list."""
    (found,) = find_moved(_definition(**before), _definition(**now)).findings
    assert "OUTPUT_MOVED" == found.code
    assert found.saw.startswith("The output t moves from ")


def test_outputs_come_and_go() -> None:
    """Another table is another output, wherever it is."""
    now = {"outputs": [{"table": "new", "databases": ["b"]}]}
    assert not find_moved(_definition(), now).findings
