"""Draws the figures of each benchmark as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from services.dev.bench.svg_plot import (
    Axis,
    Bars,
    Line,
    bar_chart,
    line_chart,
    write_figure,
)

Figures = Mapping[str, Any]

_OURS = "Tallyweir"
_RATE = Axis(label="events per second; longer is better")
_RATE_AXIS = Axis(label="events per second")
_COST_AXIS = Axis(label="processor time, µs per event")
_HALF = 480
_MEGA = 1_000_000
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


def plot_throughput(figures: Figures) -> str:
    """Draw Tallyweir and each peer, with the guarantee of each."""
    cold, warm = figures["cold"], figures["warm"]
    ours = {"cold": cold["events_per_second"], "warm": warm["events_per_second"]}
    rows = [Bars(name=_OURS, note="exactly once, by ID", values=ours)]
    for name, guarantee in figures["guarantees"].items():
        peer = {"cold": cold["peers"][name], "warm": warm["peers"][name]}
        rows.append(Bars(name=_words(name), note=guarantee, values=peer))
    return _rates("Throughput into Postgres", rows)


def plot_variants(figures: Figures) -> str:
    """Draw each variant that has a rate, such as a guarantee or a set of databases."""
    rows = [
        Bars(name=_words(name), values=_cold_and_warm(one))
        for name, one in figures.items()
        if isinstance(one, Mapping)
    ]
    return _rates("Throughput by variant", rows)


def plot_pair(figures: Figures) -> str:
    """Draw Tallyweir and its one peer."""
    return _rates("Throughput into Postgres", _pair(figures))


def plot_windows(figures: Figures) -> str:
    """Draw the windowed counts of Tallyweir and its one peer."""
    return _rates("Windowed counts", _pair(figures))


def plot_cost(figures: Figures) -> str:
    """Draw the processor time of an event by part, and the bytes that it leaves."""
    cold, warm = (
        figures[round_]["cpu_seconds_per_million"] for round_ in ("cold", "warm")
    )
    rows = [
        Bars(name=_words(part), values={"cold": cold[part], "warm": warm[part]})
        for part in warm
    ]
    unit = Axis(label="processor time, µs per event; shorter is better")
    left = [
        Bars(name=name, values={one: figures[one][key] for one in ("cold", "warm")})
        for name, key in (
            ("written to Postgres' log", "log_bytes_per_event"),
            ("shuffled by Spark", "shuffled_bytes_per_event"),
        )
    ]
    charts = [
        bar_chart("What an event costs", unit, rows),
        bar_chart("What it leaves", Axis(label="bytes per event"), left),
    ]
    return write_figure("Cost", charts)


def plot_latency(figures: Figures) -> str:
    """Draw percentiles over the time of the load, including the settling time."""
    spans = figures["over_time"]
    lines = [
        Line(name=name, points=[(one["second"], one[key]) for one in spans])
        for name, key in (("99 %", "p99_ms"), ("90 %", "p90_ms"), ("median", "p50_ms"))
    ]
    chart = line_chart(
        f"From send to row at {figures['rate']:,} events/s, exactly once",
        Axis(
            label="seconds of the load; not counted: the first "
            f"{figures['settling_seconds']:.0f}"
        ),
        Axis(label="latency, ms", log=True),
        lines,
    )
    return write_figure("Latency over time", [chart])


def plot_scale(figures: Figures) -> str:
    """Draw the rate and the cost of an event for each axis, then the prediction."""
    charts = []
    for axis, points in figures["axes"].items():
        if not points:
            continue
        x_axis = Axis(label=_AXIS_LABELS[axis], log=axis in _LOG_AXES)
        rates = [
            Line(name=name, points=[(one["value"], one[key]) for one in points])
            for name, key in (
                ("cold", "cold_events_per_second"),
                ("warm", "events_per_second"),
            )
        ]
        costs = [
            Line(
                name=part,
                points=[
                    (one["value"], one["cpu_seconds_per_million"][part])
                    for one in points
                ],
            )
            for part in points[0]["cpu_seconds_per_million"]
        ]
        title = _words(axis).capitalize()
        charts += [
            line_chart(title, x_axis, _RATE_AXIS, rates, width=_HALF),
            line_chart(f"{title}: cost", x_axis, _COST_AXIS, costs, width=_HALF),
        ]
    predicted = [
        (one["nodes"], one["events_per_second"])
        for one in figures["predicted"]["nodes"]
    ]
    charts.append(
        line_chart(
            "Predicted, not measured",
            Axis(label="nodes for Spark", log=True),
            _RATE_AXIS,
            [Line(name="warm, exactly once, by ID", points=predicted)],
            width=_HALF,
        )
    )
    return write_figure("How cost grows as work grows", charts, columns=2)


def plot_full_catalog(figures: Figures) -> str:
    """Draw the rates with an empty catalog and with a full one."""
    rows = [
        Bars(name=name, values=_cold_and_warm(figures[one]))
        for name, one in (
            ("no IDs in the catalog", "empty"),
            (f"{figures['ids']:,} IDs in the catalog", "full"),
        )
    ]
    return _rates("Throughput by what the catalog holds", rows)


def plot_soak(figures: Figures) -> str:
    """Draw rate, lag, memory and catalog over the time of the load."""
    spans = figures["over_time"]
    seconds = Axis(
        label="seconds of the load; not compared: the first "
        f"{figures['settling_seconds']:.0f}"
    )

    def line(name: str, key: str, unit: float = 1.0) -> Line:
        return Line(
            name=name, points=[(one["second"], one[key] / unit) for one in spans]
        )

    parts = [
        Line(
            name=_words(part),
            points=[
                (one["second"], one["memory_bytes"][part] / _MEGA) for one in spans
            ],
        )
        for part in spans[0]["memory_bytes"]
    ]
    charts = [
        line_chart(title, seconds, axis, lines, width=_HALF)
        for title, axis, lines in (
            (
                f"At {figures['rate']:,} events/s",
                _RATE_AXIS,
                [line("read", "events_per_second"), line("sent", "sent_per_second")],
            ),
            ("Lag", Axis(label="messages"), [line("waiting", "lag_records")]),
            ("Memory that is no file", Axis(label="MB"), parts),
            (
                "Seen-ID catalog",
                Axis(label="MB"),
                [
                    line("stored", "catalog_bytes", _MEGA),
                    line("computed", "computed_bytes", _MEGA),
                ],
            ),
        )
    ]
    return write_figure("A steady load over time", charts, columns=2)


def plot_dedup(figures: Figures) -> str:
    """Draw cost, space and the wait after a start, by the size of the catalog."""
    points = figures["points"]
    sizes = Axis(label="IDs in the catalog", log=True)
    ours = [
        _by_size(points, "probe", "tallyweir", "probe_us"),
        _by_size(points, "probe, file, publish", "tallyweir", "append_us"),
    ]
    peers = [
        _by_size(points, _words(name), name, "us_per_event")
        for name in ("unique_index", "spark_rocksdb")
        if name in points[0]
    ]
    rooms = [
        _by_size(points, where, "tallyweir", f"{where}_bytes_per_id")
        for where in ("postgres", "disk", "memory")
    ]
    waits = [
        Line(
            name=f"repeats {_words(kind)}",
            points=[
                (one["ids"], one["tallyweir"]["first_answer_seconds"][kind])
                for one in points
            ],
        )
        for kind in points[0]["tallyweir"]["first_answer_seconds"]
    ]
    charts = [
        line_chart(title, sizes, axis, lines, width=_HALF)
        for title, axis, lines in (
            ("Cost", Axis(label="µs per event", log=True), [*ours, *peers]),
            ("Room", Axis(label="bytes per ID"), rooms),
            ("From a start to the first answer", Axis(label="seconds"), waits),
        )
    ]
    return write_figure("Seen-ID catalog by its size", charts, columns=2)


def _by_size(points: Sequence[Figures], name: str, whose: str, figure: str) -> Line:
    measured = [one for one in points if whose in one]
    return Line(
        name=name, points=[(one["ids"], one[whose][figure]) for one in measured]
    )


#: How to draw each command's figures; a command that is not listed has no picture.
PLOTS: Mapping[str, Callable[[Figures], str]] = {
    "throughput": plot_throughput,
    "guarantees": plot_variants,
    "databases": plot_variants,
    "windows": plot_windows,
    "joins": plot_pair,
    "cost": plot_cost,
    "latency": plot_latency,
    "scale": plot_scale,
    "dedup": plot_dedup,
    "soak": plot_soak,
    "full-catalog": plot_full_catalog,
}


def _rates(title: str, rows: Sequence[Bars]) -> str:
    return write_figure(title, [bar_chart(title, _RATE, rows)])


def _pair(figures: Figures) -> list[Bars]:
    peer = _cold_and_warm(figures, "peer_")
    return [
        Bars(name=_OURS, values=_cold_and_warm(figures)),
        Bars(name="Peer", note=figures["peer"], values=peer),
    ]


def _cold_and_warm(figures: Figures, prefix: str = "") -> dict[str, float]:
    return {
        "cold": figures[f"{prefix}cold_events_per_second"],
        "warm": figures[f"{prefix}events_per_second"],
    }


def _words(name: str) -> str:
    return name.replace("_", " ")
