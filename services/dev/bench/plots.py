"""Draws the figures of each benchmark as a picture, by matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Figures = Mapping[str, Any]

_OURS = "Tallyweir"
_RATE = "events per second"
_COST = "processor time, µs per event"
_ROUNDS = ("cold", "warm")
_MEGA = 1_000_000
_INCHES = (7.5, 3.8)
#: Most letters in a line of a note.
_NOTE_LETTERS = 36
#: A line with at most so many points has a tick at each of them.
_FEW_POINTS = 7
#: Axes whose values double or grow tenfold from one point to the next.
_LOG_AXES = ("task_slots", "kafka_partitions", "event_bytes", "window_keys")
#: Text stays text, and the same figures give the same file.
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "tallyweir",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of one table: bars by name, or lines over numbers.

    Attributes:
        unit: What the values measure.
        rows: By name or number, the value of each series, such as cold and warm.
        x_label: What the numbers of rows measure; None draws bars.
        logs: The axes that are logarithmic: ``x``, ``y``, or both.
    """

    title: str
    unit: str
    rows: Mapping[Any, Mapping[str, float]]
    x_label: str | None = None
    logs: str = ""

    def draw(self, axes: Axes) -> None:
        """Draw the bars, which begin at zero, or the lines."""
        if self.x_label is None:
            self._draw_bars(axes)
        else:
            self._draw_lines(axes, list(self.rows))
        axes.set_title(self.title, loc="left", fontweight="bold")
        axes.legend(loc="best", frameon=False)

    def _series(self) -> Iterator[tuple[str, list[float]]]:
        for name in next(iter(self.rows.values())):
            yield name, [row[name] for row in self.rows.values()]

    def _draw_bars(self, axes: Axes) -> None:
        """Draw the bars of each row together, the first row on top."""
        series = list(self._series())
        first = [row * (len(series) + 1) for row in range(len(self.rows))]
        for number, (name, values) in enumerate(series):
            places = [place + number for place in first]
            axes.bar_label(
                axes.barh(places, values, height=0.9, label=name), fmt=_short, padding=3
            )
        middle = (len(series) - 1) / 2
        axes.set_yticks([place + middle for place in first], list(self.rows))
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter(_short)
        axes.set_xlabel(self.unit)

    def _draw_lines(self, axes: Axes, places: Sequence[float]) -> None:
        for name, values in self._series():
            axes.plot(places, values, marker="o", markersize=4, label=name)
        if "x" in self.logs:
            axes.set_xscale("log")
        if "y" in self.logs:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        if len(places) <= _FEW_POINTS:
            axes.set_xticks(places)
            axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter(_short)
        axes.yaxis.set_major_formatter(_short)
        axes.set_xlabel(self.x_label or "")
        axes.set_ylabel(self.unit)


def draw(command: str, figures: Figures) -> str:
    """Draw the figures of a command as an SVG document."""
    charts = list(PLOTS[command](figures))
    columns = 1 if len(charts) <= 2 else 2  # noqa: PLR2004 - a pair fits in a column
    rows = -(-len(charts) // columns)
    with mpl.rc_context(_STYLE):
        figure = Figure((columns * _INCHES[0], rows * _INCHES[1]), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).flat
        for axes, chart in zip_longest(places, charts):
            if chart is None:
                axes.remove()
            else:
                chart.draw(axes)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def _short(value: float, _place: float | None = None) -> str:
    """Format a number in the short form that an axis needs, such as 137.8k."""
    if value >= _MEGA:
        return f"{value / _MEGA:.4g}M"
    if value >= 10_000:  # noqa: PLR2004 - shorter numbers need no unit
        return f"{value / 1_000:.4g}k"
    return f"{value:,.4g}"


def _plot_throughput(figures: Figures) -> Iterator[Chart]:
    """Draw Tallyweir and each peer, with the guarantee of each."""
    ours = _noted(_OURS, "exactly once, by ID")
    rows = {ours: {round_: figures[round_]["events_per_second"] for round_ in _ROUNDS}}
    for name, guarantee in figures["guarantees"].items():
        rows[_noted(_words(name), guarantee)] = {
            round_: figures[round_]["peers"][name] for round_ in _ROUNDS
        }
    yield Chart(title="Throughput into Postgres", unit=_RATE, rows=rows)


def _plot_guarantees(figures: Figures) -> Iterator[Chart]:
    """Draw each guarantee, and the peer, which have a rate."""
    rows = {
        _words(name): _cold_and_warm(one)
        for name, one in figures.items()
        if isinstance(one, Mapping)
    }
    yield Chart(title="Throughput by guarantee", unit=_RATE, rows=rows)


def _plot_formats(figures: Figures) -> Iterator[Chart]:
    """Draw each format, and the peers on JSON."""
    rows = {
        _words(name): _cold_and_warm(one) for name, one in figures["formats"].items()
    }
    rows |= {
        _noted(_words(name), "a peer, on JSON"): _cold_and_warm(one)
        for name, one in figures["peers"].items()
    }
    yield Chart(title="Throughput by format", unit=_RATE, rows=rows)


def _plot_pair(figures: Figures) -> Iterator[Chart]:
    rows = {
        _OURS: _cold_and_warm(figures),
        _noted("Peer", figures["peer"]): _cold_and_warm(figures, "peer_"),
    }
    yield Chart(title="Throughput into Postgres", unit=_RATE, rows=rows)


def _plot_cost(figures: Figures) -> Iterator[Chart]:
    costs = {round_: figures[round_]["cpu_seconds_per_million"] for round_ in _ROUNDS}
    yield Chart(
        title="What an event costs",
        unit=_COST,
        rows={
            part: {round_: costs[round_][part] for round_ in _ROUNDS}
            for part in costs["warm"]
        },
    )
    logged = {round_: figures[round_]["log_bytes_per_event"] for round_ in _ROUNDS}
    yield Chart(
        title="What it leaves",
        unit="bytes per event",
        rows={"written to\nPostgres' log": logged},
    )


def _plot_latency(figures: Figures) -> Iterator[Chart]:
    yield Chart(
        title=f"From send to row at {figures['rate']:,} events/s, exactly once",
        unit="latency, ms",
        x_label="seconds of the load; not counted: the first "
        f"{figures['settling_seconds']:.0f}",
        logs="y",
        rows={
            one["second"]: {
                "99 %": one["p99_ms"],
                "90 %": one["p90_ms"],
                "median": one["p50_ms"],
            }
            for one in figures["over_time"]
        },
    )


def _plot_scale(figures: Figures) -> Iterator[Chart]:
    for axis, points in figures["axes"].items():
        rates = {one["value"]: _cold_and_warm(one) for one in points}
        costs = {one["value"]: one["cpu_seconds_per_million"] for one in points}
        for unit, rows in ((_RATE, rates), (_COST, costs)):
            if rows:
                yield Chart(
                    title=_words(axis).capitalize(),
                    unit=unit,
                    rows=rows,
                    x_label=_words(axis),
                    logs="x" if axis in _LOG_AXES else "",
                )


def _plot_full_catalog(figures: Figures) -> Iterator[Chart]:
    rows = {
        "no IDs in the catalog": _cold_and_warm(figures["empty"]),
        f"{figures['ids']:,} IDs in the catalog": _cold_and_warm(figures["full"]),
    }
    yield Chart(title="Throughput by what the catalog holds", unit=_RATE, rows=rows)


def _plot_soak(figures: Figures) -> Iterator[Chart]:
    spans: Mapping[float, Figures] = {
        one["second"]: one for one in figures["over_time"]
    }
    rates = {"read": "events_per_second", "sent": "sent_per_second"}
    catalog = {"stored": "catalog_bytes", "computed": "computed_bytes"}
    memory = {
        second: {part: size / _MEGA for part, size in one["memory_bytes"].items()}
        for second, one in spans.items()
    }
    for title, unit, rows in (
        (f"At {figures['rate']:,} events/s", _RATE, _named(spans, rates)),
        ("Lag", "messages", _named(spans, {"waiting": "lag_records"})),
        ("Memory that is no file", "MB", memory),
        ("Seen-ID catalog", "bytes", _named(spans, catalog)),
    ):
        yield Chart(
            title=title,
            unit=unit,
            rows=rows,
            x_label="seconds of the load; not compared: the first "
            f"{figures['settling_seconds']:.0f}",
        )


def _plot_dedup(figures: Figures) -> Iterator[Chart]:
    sizes: Mapping[float, Figures] = {one["ids"]: one for one in figures["points"]}
    costs = {"probe": "probe_us", "probe, file, publish": "append_us"}
    rooms = {where: f"{where}_bytes_per_id" for where in ("postgres", "memory")}
    waits = {ids: one["first_answer_seconds"] for ids, one in sizes.items()}
    for title, unit, logs, rows in (
        ("Cost", "µs per event", "xy", _named(sizes, costs)),
        ("Room", "bytes per ID", "x", _named(sizes, rooms)),
        ("From a start to the first answer, by repeats", "seconds", "x", waits),
    ):
        yield Chart(
            title=title, unit=unit, rows=rows, x_label="IDs in the catalog", logs=logs
        )


#: The charts of each command's figures.
PLOTS: Mapping[str, Callable[[Figures], Iterator[Chart]]] = {
    "throughput": _plot_throughput,
    "guarantees": _plot_guarantees,
    "formats": _plot_formats,
    "windows": _plot_pair,
    "joins": _plot_pair,
    "cost": _plot_cost,
    "latency": _plot_latency,
    "scale": _plot_scale,
    "dedup": _plot_dedup,
    "soak": _plot_soak,
    "full-catalog": _plot_full_catalog,
}


def _named(
    points: Mapping[float, Figures], keys: Mapping[str, str]
) -> dict[float, dict[str, float]]:
    """Return some figures of each point, by the names of their series."""
    return {
        place: {name: one[key] for name, key in keys.items()}
        for place, one in points.items()
    }


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
