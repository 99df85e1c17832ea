"""A flame graph is well-formed, has no script, and its widths are shares."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.services.operate.profiling.flame_graph import (
    DEPTH_MAX,
    draw_flame_graph,
    fold,
)

_SVG = "{http://www.w3.org/2000/svg}"


def _titles(svg: str) -> list[str]:
    return [str(one.text) for one in ET.fromstring(svg).iter(f"{_SVG}title")]


def test_a_frame_has_the_samples_of_all_that_it_calls() -> None:
    """Callers below, each with its share."""
    svg = draw_flame_graph("t", {("a", "b"): 3, ("a", "c"): 1, ("d",): 4})
    assert {
        "all (8 samples, 100.0%)",
        "a (4 samples, 50.0%)",
        "b (3 samples, 37.5%)",
        "c (1 samples, 12.5%)",
        "d (4 samples, 50.0%)",
    } == set(_titles(svg))


def test_a_frame_stands_on_its_caller_and_inside_of_its_width() -> None:
    """Otherwise it would be read as called by another one."""
    svg = draw_flame_graph("t", {("a", "b"): 3, ("c",): 1})
    places = {
        str(group[0].text).split()[0]: {
            k: float(v) for k, v in group[1].attrib.items() if k != "fill"
        }
        for group in ET.fromstring(svg).iter(f"{_SVG}g")
    }
    assert places["b"]["y"] < places["a"]["y"] < places["all"]["y"]
    assert (places["a"]["x"], places["a"]["width"]) == (
        places["b"]["x"],
        places["b"]["width"],
    )
    assert places["c"]["x"] == pytest.approx(places["a"]["x"] + places["a"]["width"])


@given(
    st.dictionaries(
        st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5).map(tuple),
        st.integers(1, 1_000),
        max_size=8,
    ),
    st.text(max_size=10),
)
def test_whatever_frames_are_called_the_graph_is_xml_without_script(
    stacks: dict[tuple[str, ...], int], title: str
) -> None:
    """Names come from programs of others."""
    svg = draw_flame_graph(title, stacks)
    tags = {one.tag for one in ET.fromstring(svg).iter()}
    assert tags <= {f"{_SVG}{name}" for name in ("svg", "rect", "text", "g", "title")}
    assert not re.search(r"<[^>]*\s(on\w+|href|style)=", svg)


def test_what_recurses_without_end_is_cut() -> None:
    """And what is too narrow to be seen is left out."""
    svg = draw_flame_graph("t", {tuple(f"f{n}" for n in range(900)): 9_999, ("x",): 1})
    assert DEPTH_MAX + 1 == len(_titles(svg))


def test_folded_stacks_are_counted() -> None:
    """What is no stack is left out."""
    lines = ["a;b c 3\n", "a;b c 2\n", "nothing\n", "\n", "d 1\n"]
    assert {("a", "b c"): 5, ("d",): 1} == fold(iter(lines))
