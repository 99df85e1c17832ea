"""Charts are well-formed, in proportion, and say what somebody named a thing."""

from __future__ import annotations

from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest

from services.dev.bench.svg_plot import (
    Axis,
    Bars,
    Chart,
    Line,
    bar_chart,
    line_chart,
    shown,
    write_figure,
)

_SVG = "{http://www.w3.org/2000/svg}"


def _parsed(*charts: Chart, columns: int = 1) -> Element:
    return ET.fromstring(write_figure("a < b", charts, columns=columns))


def _with_class(figure: Element, word: str) -> list[Element]:
    return [one for one in figure.iter() if word in one.get("class", "").split()]


def _bars(*rows: Bars) -> Chart:
    return bar_chart("Rates", Axis(label="events/s"), rows)


def _lines(*points: tuple[float, float], log: bool = False) -> Chart:
    axes = Axis(label="slots", log=log), Axis(label="latency, ms", log=log)
    return line_chart("Scale", *axes, [Line(name="p50", points=points)])


def test_bars_are_in_proportion_to_their_values_over_all_rows() -> None:
    """Or a picture would tell another ratio than the table."""
    figure = _parsed(
        _bars(
            Bars(name="ours", values={"cold": 50_000, "warm": 137_000}),
            Bars(name="peer", values={"cold": 100_000, "warm": 0}),
        )
    )
    widths = [float(one.get("width", "")) for one in _with_class(figure, "bar")]
    assert widths[3] == 0
    assert [137 / 50, 2.0] == pytest.approx(
        [widths[1] / widths[0], widths[2] / widths[0]], rel=0.002
    )


def test_points_are_in_proportion_on_linear_axes() -> None:
    """Equal steps are equally long."""
    figure = _parsed(_lines((0, 10), (1, 20), (3, 40)))
    marks = list(figure.iter(f"{_SVG}circle"))
    xs, ys = ([float(mark.get(name, "")) for mark in marks] for name in ("cx", "cy"))
    assert 2 * (xs[1] - xs[0]) == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert 2 * (ys[0] - ys[1]) == pytest.approx(ys[1] - ys[2], abs=0.2)
    assert ys[1] < ys[0], "more is higher"


def test_points_are_in_proportion_to_logarithms_on_such_axes() -> None:
    """Equal factors are equally long."""
    figure = _parsed(_lines((1, 1), (100, 10), (10_000, 100), log=True))
    marks = list(figure.iter(f"{_SVG}circle"))
    for name in ("cx", "cy"):
        first, second, third = (float(mark.get(name, "")) for mark in marks)
        assert second - first == pytest.approx(third - second, abs=0.2)


def test_text_is_escaped_and_comes_back_as_it_was() -> None:
    """A table or a peer may be called anything."""
    name, note = 'a<b>&"c', "at least once; <nothing> & more"
    figure = _parsed(_bars(Bars(name=name, note=note, values={"<warm>": 1.0})))
    texts = [(one.text or "").strip() for one in figure.iter()]
    assert {name, note, "<warm>", "events/s", "a < b"} <= set(texts)


def test_both_axes_have_labels_and_ticks_past_the_greatest_value() -> None:
    """A number without its unit says nothing."""
    figure = _parsed(_lines((1, 10), (2, 430), (4, 90)))
    labels = [one.text for one in _with_class(figure, "label")]
    assert ["latency, ms", "slots"] == sorted(map(str, labels))
    ticks = [one.text for one in _with_class(figure, "tick")]
    assert ["1", "2", "4"] == ticks[:3]
    assert "500" == ticks[-1]


def test_ticks_of_a_logarithmic_axis_are_around_the_values() -> None:
    """Room that no value needs is left out, and between powers there are others."""
    figure = _parsed(_lines((1, 230), (30, 950), log=True))
    ticks = [str(one.text) for one in _with_class(figure, "tick")]
    assert ["200", "500", "1,000"] == ticks[-3:]
    figure = _parsed(_lines((1, 1), (2, 80_000), log=True))
    ticks = [str(one.text) for one in _with_class(figure, "tick")]
    assert ["1", "10", "100", "1,000", "10k", "100k"] == ticks[-6:]


def test_it_has_colours_for_light_and_for_dark_ground() -> None:
    """Whoever reads it chose one of them."""
    style = _parsed(_lines((1, 1), (2, 2))).findtext(f"{_SVG}style")
    assert style is not None
    light, dark = style.split("@media(prefers-color-scheme:dark)")
    for rule in (".ground{", "text{", ".fill.c0{", ".stroke.c0{"):
        assert light.count(rule) == 1
        assert dark.count(rule) == 1


def test_charts_stand_side_by_side_and_fit_into_their_figure() -> None:
    """Three in two columns take two lines."""
    figure = _parsed(*(_lines((1, 1), (2, 2)) for _ in range(3)), columns=2)
    places = [chart.get("transform") for chart in figure.findall(f"{_SVG}g")]
    assert ["translate(0 0)", "translate(720 0)", "translate(0 300)"] == places
    assert "0 0 1440 600" == figure.get("viewBox")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (999, "999"),
        (1_024, "1,024"),
        (137_825, "137.8k"),
        (1_000_000, "1M"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    """An axis has little room."""
    assert text == shown(value)
