"""Draws the figures of each benchmark as a picture, by matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

Figures = Mapping[str, Any]

_OURS = "Tallyweir"
_RATE = "events per second"
_ROUNDS = ("cold", "warm")
_KILO, _MEGA = 1_000, 1_000_000
_INCHES = (7.5, 3.6)
_BAR_INCHES = 0.28
#: Most letters in a line of a note.
_NOTE_LETTERS = 36
#: A line with at most so many points has a tick at each of them.
_FEW_POINTS = 7
_AXIS_LABELS = {
    "task_slots": "tasks of Spark at a time",
    "kafka_partitions": "partitions of the topic",
    "databases": "databases that hold the rows",
    "branches": "branches in the home",
    "event_bytes": "bytes of an event",
    "window_keys": "users that are counted by window",
}
#: Axes whose values double or grow tenfold from one point to the next.
_LOG_AXES = ("task_slots", "kafka_partitions", "event_bytes", "window_keys")
#: Text stays text, and the same figures give the same file.
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": "#dddddd",
    "svg.fonttype": "none",
    "svg.hashsalt": "tallyweir",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A chart of bars that begin at zero, so that their lengths are in proportion.

    Attributes:
        unit: What the bars measure.
        rows: Values by thing, each in the same series, such as cold and warm.
    """

    title: str
    unit: str
    rows: Mapping[str, Mapping[str, float]]

    @property
    def height(self) -> float:
        """Height in inches, by the number of bars."""
        return 1.2 + _BAR_INCHES * sum(1 + len(row) for row in self.rows.values())

    def draw(self, axes: Axes) -> None:
        """Draw the bars of each thing together, the first thing on top."""
        series = list(next(iter(self.rows.values())))
        for number, name in enumerate(series):
            places = [row * (len(series) + 1) + number for row in range(len(self.rows))]
            values = [row[name] for row in self.rows.values()]
            bars = axes.barh(places, values, height=0.9, label=name)
            axes.bar_label(bars, fmt=_short, padding=3)
        middle = (len(series) - 1) / 2
        axes.set_yticks(
            [row * (len(series) + 1) + middle for row in range(len(self.rows))],
            list(self.rows),
        )
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter(_short)
        axes.set_xlabel(self.unit)
        axes.grid(axis="x")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A chart of lines with a mark at each point.

    Attributes:
        lines: Points by the name of the line.
        logs: The axes that are logarithmic: ``x``, ``y``, or both.
    """

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    logs: str = ""
    height: float = _INCHES[1]

    def draw(self, axes: Axes) -> None:
        """Draw the lines; few different x values have a tick each."""
        for name, points in self.lines.items():
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, marker="o", markersize=4, label=name)
        if "x" in self.logs:
            axes.set_xscale("log")
        if "y" in self.logs:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        ticks = sorted({x for points in self.lines.values() for x, _ in points})
        if len(ticks) <= _FEW_POINTS:
            axes.xaxis.set_major_locator(FixedLocator(ticks))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(_short)
        axes.yaxis.set_major_formatter(_short)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        axes.grid()


def draw(command: str, figures: Figures) -> str:
    """Draw the figures of a command as an SVG document."""
    charts = list(PLOTS[command](figures))
    columns = 1 if len(charts) <= 2 else 2  # noqa: PLR2004 - a pair fits in a column
    rows = [charts[first : first + columns] for first in range(0, len(charts), columns)]
    heights = [max(chart.height for chart in row) for row in rows]
    with mpl.rc_context(_STYLE):
        figure = Figure(
            figsize=(columns * _INCHES[0], sum(heights)), layout="constrained"
        )
        grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
        for number, chart in enumerate(charts):
            axes = figure.add_subplot(grid[divmod(number, columns)])
            axes.set_title(chart.title, loc="left", fontweight="bold")
            chart.draw(axes)
            axes.legend(loc="best", frameon=False)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def _short(value: float, _place: float | None = None) -> str:
    """Format a number in the short form that an axis needs, such as 137.8k."""
    if value >= _MEGA:
        return f"{value / _MEGA:.4g}M"
    if value >= 10 * _KILO:
        return f"{value / _KILO:.4g}k"
    return f"{value:,.4g}"


def _plot_throughput(figures: Figures) -> Iterator[Bars]:
    """Draw Tallyweir and each peer, with the guarantee of each."""
    ours = _noted(_OURS, "exactly once, by ID")
    rows = {ours: {round_: figures[round_]["events_per_second"] for round_ in _ROUNDS}}
    for name, guarantee in figures["guarantees"].items():
        rows[_noted(_words(name), guarantee)] = {
            round_: figures[round_]["peers"][name] for round_ in _ROUNDS
        }
    yield Bars(title="Throughput into Postgres", unit=_RATE, rows=rows)


def _plot_guarantees(figures: Figures) -> Iterator[Bars]:
    """Draw each guarantee, and the peer, which have a rate."""
    rows = {
        _words(name): _cold_and_warm(one)
        for name, one in figures.items()
        if isinstance(one, Mapping)
    }
    yield Bars(title="Throughput by guarantee", unit=_RATE, rows=rows)


def _plot_formats(figures: Figures) -> Iterator[Bars]:
    """Draw each format, and the peers on JSON."""
    rows = {
        _words(name): _cold_and_warm(one) for name, one in figures["formats"].items()
    }
    rows |= {
        _noted(_words(name), "a peer, on JSON"): _cold_and_warm(one)
        for name, one in figures["peers"].items()
    }
    yield Bars(title="Throughput by format", unit=_RATE, rows=rows)


def _plot_pair(title: str) -> Callable[[Figures], Iterator[Bars]]:
    def plot(figures: Figures) -> Iterator[Bars]:
        rows = {
            _OURS: _cold_and_warm(figures),
            _noted("Peer", figures["peer"]): _cold_and_warm(figures, "peer_"),
        }
        yield Bars(title=title, unit=_RATE, rows=rows)

    return plot


def _plot_cost(figures: Figures) -> Iterator[Bars]:
    parts = figures["warm"]["cpu_seconds_per_million"]
    yield Bars(
        title="What an event costs",
        unit="processor time, µs per event",
        rows={
            _words(part): {
                round_: figures[round_]["cpu_seconds_per_million"][part]
                for round_ in _ROUNDS
            }
            for part in parts
        },
    )
    yield Bars(
        title="What it leaves",
        unit="bytes per event",
        rows={
            name: {round_: figures[round_][key] for round_ in _ROUNDS}
            for name, key in (
                ("written to Postgres' log", "log_bytes_per_event"),
                ("shuffled by Spark", "shuffled_bytes_per_event"),
            )
        },
    )


def _plot_latency(figures: Figures) -> Iterator[Lines]:
    percentiles = {"99 %": "p99_ms", "90 %": "p90_ms", "median": "p50_ms"}
    yield Lines(
        title=f"From send to row at {figures['rate']:,} events/s, exactly once",
        x_label="seconds of the load; not counted: the first "
        f"{figures['settling_seconds']:.0f}",
        y_label="latency, ms",
        logs="y",
        lines=_lines(figures["over_time"], "second", percentiles),
    )


def _plot_scale(figures: Figures) -> Iterator[Lines]:
    rates = {"cold": "cold_events_per_second", "warm": "events_per_second"}
    for axis, points in figures["axes"].items():
        if not points:
            continue
        title = _words(axis).capitalize()
        costs = _parts(points[0], "cpu_seconds_per_million")
        for name, unit, keys in (
            (title, _RATE, rates),
            (f"{title}: cost", "processor time, µs per event", costs),
        ):
            yield Lines(
                title=name,
                x_label=_AXIS_LABELS[axis],
                y_label=unit,
                lines=_lines(points, "value", keys),
                logs="x" if axis in _LOG_AXES else "",
            )


def _plot_full_catalog(figures: Figures) -> Iterator[Bars]:
    rows = {
        "no IDs in the catalog": _cold_and_warm(figures["empty"]),
        f"{figures['ids']:,} IDs in the catalog": _cold_and_warm(figures["full"]),
    }
    yield Bars(title="Throughput by what the catalog holds", unit=_RATE, rows=rows)


def _plot_soak(figures: Figures) -> Iterator[Lines]:
    spans = figures["over_time"]
    rates = {"read": "events_per_second", "sent": "sent_per_second"}
    memory = _parts(spans[0], "memory_bytes")
    catalog = {"stored": "catalog_bytes", "computed": "computed_bytes"}
    for title, unit, size, keys in (
        (f"At {figures['rate']:,} events/s", _RATE, 1, rates),
        ("Lag", "messages", 1, {"waiting": "lag_records"}),
        ("Memory that is no file", "MB", _MEGA, memory),
        ("Seen-ID catalog", "MB", _MEGA, catalog),
    ):
        yield Lines(
            title=title,
            x_label="seconds of the load; not compared: the first "
            f"{figures['settling_seconds']:.0f}",
            y_label=unit,
            lines=_lines(spans, "second", keys, unit=size),
        )


def _plot_dedup(figures: Figures) -> Iterator[Lines]:
    points = [{"ids": one["ids"], **one["tallyweir"]} for one in figures["points"]]
    costs = {"probe": "probe_us", "probe, file, publish": "append_us"}
    rooms = {where: f"{where}_bytes_per_id" for where in ("postgres", "disk", "memory")}
    waits = _parts(points[0], "first_answer_seconds", prefix="repeats ")
    for title, unit, logs, keys in (
        ("Cost", "µs per event", "xy", costs),
        ("Room", "bytes per ID", "x", rooms),
        ("From a start to the first answer", "seconds", "x", waits),
    ):
        yield Lines(
            title=title,
            x_label="IDs in the catalog",
            y_label=unit,
            lines=_lines(points, "ids", keys),
            logs=logs,
        )


#: The charts of each command's figures.
PLOTS: Mapping[str, Callable[[Figures], Iterator[Bars | Lines]]] = {
    "throughput": _plot_throughput,
    "guarantees": _plot_guarantees,
    "formats": _plot_formats,
    "windows": _plot_pair("Windowed counts"),
    "joins": _plot_pair("Throughput into Postgres"),
    "cost": _plot_cost,
    "latency": _plot_latency,
    "scale": _plot_scale,
    "dedup": _plot_dedup,
    "soak": _plot_soak,
    "full-catalog": _plot_full_catalog,
}


def _lines(
    points: Sequence[Figures], x: str, keys: Mapping[str, str], *, unit: int = 1
) -> dict[str, list[tuple[float, float]]]:
    """Return a line for each key, which is the path of a figure in every point."""
    return {
        label: [(one[x], _at(one, path) / unit) for one in points]
        for label, path in keys.items()
    }


def _at(figures: Figures, path: str) -> float:
    found: Any = reduce(getitem, path.split("."), figures)
    return float(found)


def _parts(point: Figures, name: str, *, prefix: str = "") -> dict[str, str]:
    """Return the paths of a figure that has parts, by the parts' names."""
    return {f"{prefix}{_words(part)}": f"{name}.{part}" for part in point[name]}


def _cold_and_warm(figures: Figures, prefix: str = "") -> dict[str, float]:
    return {
        "cold": figures[f"{prefix}cold_events_per_second"],
        "warm": figures[f"{prefix}events_per_second"],
    }


def _noted(name: str, note: str) -> str:
    """Return the label of a row with a note below it, in lines of a bearable length."""
    return f"{name}\n{textwrap.fill(note, _NOTE_LETTERS)}"


def _words(name: str) -> str:
    return name.replace("_", " ")
