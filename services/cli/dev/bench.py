"""``bench``: measurements on servers of their own."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from tallyweir.services.cli.arguments import EndsWithJson
from tallyweir.services.cli.rendering import example, note, say, say_json, say_table
from tallyweir.sinks.protocol.errors import FatalError


def _drawable(file: Path | None) -> Path | None:
    """Check that a picture can be drawn and written, before minutes of measuring."""
    if file is None:
        return None
    if not file.absolute().parent.is_dir():
        raise typer.BadParameter(f"no such folder: {file.parent}")
    if find_spec("matplotlib") is None:
        raise typer.BadParameter("matplotlib draws it; tallyweir test installs it")
    return file


def _sizes(text: str) -> list[int]:
    """Return the sizes of a catalog, each of which can be measured."""
    from tallyweir.services.dev.bench.catalog.dedup import IDS_MAX, IDS_MIN

    for size in text.split(","):
        if not (size.isdecimal() and IDS_MIN <= int(size) <= IDS_MAX):
            raise typer.BadParameter(
                f"a size is a number from {IDS_MIN:,} to {IDS_MAX:,}"
            )
    return sorted({int(size) for size in text.split(",")})


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
_Declared: TypeAlias = Callable[..., None]
_Seed = Annotated[int, typer.Option(help="Same seed, same events.")]


GROUP = typer.Typer(
    name="bench",
    help="Measure with a private broker and database; leaves nothing behind.",
    no_args_is_help=True,
    epilog=example("tallyweir bench throughput --json"),
)


def _study(module: str) -> Callable[[_Declared], _Declared]:
    """Make a command of a study: its options are those of the study's ``measure``.

    Args:
        module: The study, in ``tallyweir.services.dev.bench``.
    """

    def make(declared: _Declared) -> _Declared:
        name = declared.__name__.replace("_", "-")

        @functools.wraps(declared)
        def run(*, as_json: bool, plot: Path | None, **options: object) -> None:
            study = importlib.import_module(f"tallyweir.services.dev.bench.{module}")
            figures: dict[str, Any] = study.measure(**options, say=note)
            if plot is not None:
                from tallyweir.services.dev.bench.plots import draw

                plot.write_text(draw(name, figures), "utf-8")
                note(f"wrote {plot}")
            if as_json:
                say_json(figures)
            else:
                for figure, value in figures.items():
                    _say_figure(figure, value)
            if figures.get("failed"):
                raise typer.Exit(FatalError.exit_code)

        GROUP.command(name, epilog=example(f"tallyweir bench {name} --json"))(run)
        return declared

    return make


@_study("throughput")
def throughput(
    events: _Events = 2_000_000,
    seed: _Seed = 7,
    with_peers: _WithPeers = True,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Events per second with deduplication, beside Flink, Spark and Quix."""


@_study("latency")
def latency(
    rate: Annotated[int, typer.Option(min=1, help="Events a second.")] = 5_000,
    seconds: Annotated[
        int, typer.Option(min=40, help="Duration of the steady load.")
    ] = 90,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Milliseconds from a producer's send to the row in Postgres, at a steady rate."""


@_study("guarantees")
def guarantees(
    events: _Events = 2_000_000,
    seed: _Seed = 7,
    with_peers: _WithPeers = True,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """What each guarantee costs: once by ID, once by offset, at least once."""


@_study("formats")
def formats(
    events: _Events = 1_000_000,
    seed: _Seed = 7,
    with_peers: _WithPeers = True,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Events per second by the format of payloads, beside Flink and Spark on JSON."""


@_study("cost")
def cost(
    events: _Events = 1_000_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Processor seconds of each part, and bytes of Postgres' log, by event."""


@_study("scale")
def scale(
    events: Annotated[
        int, typer.Option(min=100_000, help="Events of each of two rounds, per point.")
    ] = 1_000_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """How cost grows with slots, partitions, databases, branches, bytes and keys."""


@_study("windows")
def windows(
    events: _Events = 1_250_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Windowed counts, beside Spark's own in the same run."""


@_study("joins")
def joins(
    events: _Events = 1_000_000,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Pairs of two topics' events, beside Spark's own join in the same run."""


@_study("catalog.dedup")
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


@_study("catalog.full_catalog")
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


@_study("soak.soak")
def soak(
    minutes: Annotated[
        int, typer.Option(min=2, help="Duration of the steady load.")
    ] = 30,
    seed: _Seed = 7,
    as_json: EndsWithJson = False,
    plot: _Plot = None,
) -> None:
    """Memory, rate and catalog over time, at 80 % of what the pipeline sustains."""


def _say_figure(name: str, figure: object) -> None:
    """Print a figure: a list of points as a table, all else by the path to it."""
    if name == "over_time":
        say(f"{name}: --json and --plot have it")
    elif isinstance(figure, Mapping):
        for part, one in figure.items():
            _say_figure(f"{name}.{part}", one)
    elif isinstance(figure, list) and figure and isinstance(figure[0], Mapping):
        rows = [dict(_flat(point)) for point in figure]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        say(f"{name}:")
        say_table(columns, [[row.get(one, "") for one in columns] for row in rows])
    else:
        say(f"{name}: {_told(figure)}")


def _flat(point: Mapping[str, object], above: str = "") -> Iterator[tuple[str, str]]:
    for name, figure in point.items():
        if isinstance(figure, Mapping):
            yield from _flat(figure, f"{above}{name}.")
        else:
            yield f"{above}{name}", _told(figure)


def _told(figure: object) -> str:
    is_number = isinstance(figure, (int, float)) and not isinstance(figure, bool)
    return f"{figure:,}" if is_number else str(figure)
