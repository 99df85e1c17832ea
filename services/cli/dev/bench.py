"""``bench``: measurements on servers of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.options import EndsWithJson
from services.cli.rendering import example, note, say, say_json, say_table
from sinks.protocol.errors import FatalError


def _drawable(file: Path | None) -> Path | None:
    """Check that a picture can be drawn and written, before minutes of measuring."""
    if file is None:
        return None
    if not file.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}")
    if find_spec("matplotlib") is None:
        raise typer.BadParameter("matplotlib draws it; tallyweir test installs it")
    return file


def _sizes(text: str) -> str:
    """Check that all sizes can be measured."""
    from services.dev.bench.catalog.id_batches import IDS_MAX, IDS_MIN

    for size in text.split(","):
        if not (size.isdecimal() and IDS_MIN <= int(size) <= IDS_MAX):
            raise typer.BadParameter(
                f"a size is a number from {IDS_MIN:,} to {IDS_MAX:,}"
            )
    return text


#: Column names and rows of a table.
_Table = tuple[Sequence[str], Sequence[Sequence[object]]]

_Events = Annotated[int, typer.Option(min=300_000, help="Events of each round.")]
_WithPeers = Annotated[
    bool, typer.Option("--peers/--no-peers", help="Measure the peers as well.")
]
_Plot = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        writable=True,
        callback=_drawable,
        help="Also draw the figures into this file, as SVG.",
    ),
]
_Seed = Annotated[int, typer.Option(help="Same seed, same events.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    bench = typer.Typer(
        name="bench",
        help="Measure, with a broker and a database of its own; leaves nothing.",
        no_args_is_help=True,
        epilog=example("tallyweir bench throughput --json"),
    )
    bench.command(epilog=example("tallyweir bench throughput --json"))(throughput)
    bench.command(epilog=example("tallyweir bench latency --json"))(latency)
    bench.command(epilog=example("tallyweir bench guarantees --json"))(guarantees)
    bench.command(epilog=example("tallyweir bench cost --json"))(cost)
    bench.command(epilog=example("tallyweir bench scale --json"))(scale)
    bench.command(epilog=example("tallyweir bench windows --json"))(windows)
    bench.command(epilog=example("tallyweir bench joins --json"))(joins)
    bench.command(epilog=example("tallyweir bench dedup --json"))(dedup)
    bench.command(epilog=example("tallyweir bench full-catalog --json"))(full_catalog)
    bench.command(epilog=example("tallyweir bench soak --json"))(soak)
    app.add_typer(bench)


def throughput(
    events: _Events = 2_000_000,
    seed: _Seed = 7,
    with_peers: _WithPeers = True,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Events per second with deduplication, beside Flink, Spark and Quix."""
    from services.dev.bench.throughput import measure_throughput

    _show(
        "throughput",
        measure_throughput(events=events, seed=seed, with_peers=with_peers, say=note),
        as_json=as_json,
        plot=plot,
    )


def latency(
    rate: Annotated[int, typer.Option(min=1, help="Events a second.")] = 5_000,
    seconds: Annotated[int, typer.Option(min=40, help="Of the steady load.")] = 90,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Milliseconds from a producer's send to the row in Postgres, at a steady rate."""
    from services.dev.bench.latency import measure_latency

    _show(
        "latency",
        measure_latency(rate=rate, seconds=seconds, seed=seed, say=note),
        as_json=as_json,
        plot=plot,
    )


def guarantees(
    events: _Events = 2_000_000,
    seed: _Seed = 7,
    with_peers: _WithPeers = True,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """What each guarantee costs: once by ID, once by offset, at least once."""
    from services.dev.bench.guarantees import measure_guarantees

    _show(
        "guarantees",
        measure_guarantees(events=events, seed=seed, with_peers=with_peers, say=note),
        as_json=as_json,
        plot=plot,
    )


def cost(
    events: _Events = 1_000_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Processor seconds of each part, and bytes of Postgres' log, by event."""
    from services.dev.bench.cost import measure_cost

    _show(
        "cost",
        measure_cost(events=events, seed=seed, say=note),
        as_json=as_json,
        plot=plot,
    )


def scale(
    events: Annotated[
        int, typer.Option(min=100_000, help="Events of each of two rounds, per point.")
    ] = 1_000_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """How cost grows with slots, partitions, databases, branches, bytes and keys."""
    from services.dev.bench.scale import measure_scale, scale_tables

    figures = measure_scale(events=events, seed=seed, say=note)
    _show("scale", figures, as_json=as_json, plot=plot, tables=scale_tables)


def windows(
    events: _Events = 1_250_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Windowed counts, beside Spark's own in the same run."""
    from services.dev.bench.windows import measure_windows

    _show(
        "windows",
        measure_windows(events=events, seed=seed, say=note),
        as_json=as_json,
        plot=plot,
    )


def joins(
    events: _Events = 1_000_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Pairs of two topics' events, beside Spark's own join in the same run."""
    from services.dev.bench.joins import measure_joins

    _show(
        "joins",
        measure_joins(events=events, seed=seed, say=note),
        as_json=as_json,
        plot=plot,
    )


def dedup(
    ids: Annotated[
        str,
        typer.Option(
            metavar="NUMBER[,NUMBER...]",
            callback=_sizes,
            help="IDs in the catalog, each size measured.",
        ),
    ] = "1000000,10000000,100000000",
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """What the seen-ID catalog costs by its size."""
    from services.dev.bench.catalog.dedup import dedup_tables, measure_dedup

    figures = measure_dedup(
        sizes=[int(size) for size in ids.split(",")],
        seed=seed,
        say=note,
    )
    _show("dedup", figures, as_json=as_json, plot=plot, tables=dedup_tables)


def full_catalog(
    ids: Annotated[
        int,
        typer.Option(min=1_000_000, max=100_000_000, help="IDs in the full catalog."),
    ] = 100_000_000,
    events: _Events = 2_000_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Events per second with a full catalog of seen IDs, beside an empty one."""
    from services.dev.bench.catalog.full_catalog import measure_full_catalog
    from services.dev.bench.catalog.full_catalog_tables import full_catalog_tables

    figures = measure_full_catalog(ids=ids, events=events, seed=seed, say=note)
    _show(
        "full-catalog", figures, as_json=as_json, plot=plot, tables=full_catalog_tables
    )


def soak(
    minutes: Annotated[int, typer.Option(min=2, help="Of the steady load.")] = 30,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Memory, rate and catalog over time, at 80 % of what the pipeline sustains."""
    from services.dev.bench.soak.soak import measure_soak, soak_tables

    figures = measure_soak(minutes=minutes, seed=seed, say=note)
    _show("soak", figures, as_json=as_json, plot=plot, tables=soak_tables)


def _show(
    command: str,
    figures: Mapping[str, Any],
    *,
    as_json: bool,
    plot: Path | None,
    tables: Callable[[Mapping[str, Any]], Sequence[_Table]] | None = None,
) -> None:
    """Draw, print and judge figures; people read the tables, if there are any."""
    _draw(command, figures, plot)
    if as_json:
        say_json(figures)
    elif tables is None:
        for name, figure in figures.items():
            say(f"{name}: {figure}")
    else:
        for columns, rows in tables(figures):
            say_table(columns, rows)
            say("")
    _end(figures)


def _end(figures: Mapping[str, object]) -> None:
    """Exit with an error if some part of the run has no figure."""
    if figures.get("failed"):
        raise typer.Exit(FatalError.exit_code)


def _draw(command: str, figures: Mapping[str, object], plot: Path | None) -> None:
    if plot is None:
        return
    from services.dev.bench.plots import draw

    plot.write_text(draw(command, figures), "utf-8")
    note(f"wrote {plot}")
