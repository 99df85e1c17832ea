"""``offsets show`` and ``offsets reset``: where a pipeline reads on, and moving it.

Crash:
    A reset is one commit. A command that died before it changed nothing; one that died
    after it finds nothing to do when it is called again, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.pipeline_name import pipeline_name
from services.cli.rendering import example, say, say_json, say_table
from sinks.protocol.errors import ConfigurationError
from sinks.protocol.offsets import TopicPartition

if TYPE_CHECKING:
    from services.pipeline_offsets import PartitionOffsets
    from sinks.postgres.steering import MovedPosition

_Pipeline = Annotated[str, typer.Argument(help="Name of a pipeline, or its YAML file.")]
_AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on one line.")
]

_PUT_ASIDE = {
    "dead_letter": "dead letters",
    "expired_event": "expired events",
    "duplicate_event": "duplicates",
    "filtered_event": "filtered events",
}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    group = typer.Typer(
        help="Where a pipeline reads on in Kafka: show it, or move it.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command(
        epilog=example(
            "tallyweir offsets show departures",
            "tallyweir offsets show departures --json",
        )
    )(show)
    group.command(
        epilog=example(
            "tallyweir offsets reset departures --to-time 2026-05-03T04:00:00Z \\",
            "    --reason 'contract v2 reads what v1 called dead' --dry-run",
            "tallyweir offsets reset departures --to-offset flights:0=1200 \\",
            "    --to-offset flights:1=1180 --reason 'a poisoned upload'",
        )
    )(reset)
    app.add_typer(
        group, name="offsets", epilog=example("tallyweir offsets show departures")
    )


def show(pipeline: _Pipeline, as_json: _AsJson = False) -> None:
    """Show of each partition the next offset, its record's time, the log, and the lag.

    Headroom is the time until Kafka deletes the next record by retention.ms of the
    topic; with nothing left to read there is no such record.
    """
    from services.endpoints import resolve_endpoints
    from services.pipeline_offsets import read_offsets

    name = pipeline_name(pipeline)
    found = read_offsets(resolve_endpoints(), name, now=datetime.now(UTC))
    if as_json:
        say_json({"pipeline": name, "partitions": [asdict(part) for part in found]})
        return
    say_table(
        ("partition", "next", "its record's time", "log", "lag", "headroom"),
        [_line(part) for part in found],
    )


def reset(  # noqa: PLR0913, PLR0917 - options of a command
    pipeline: _Pipeline,
    reason: Annotated[str, typer.Option(help="Why; the ledger keeps it.")],
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Go on with the first record of each partition that Kafka got then or "
            "later: ISO 8601, with a time zone.",
        ),
    ] = None,
    to_offset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:PARTITION=OFFSET",
            help="Go on with this offset; once for each partition that is to move.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would mean.")
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Let a pipeline go on from other offsets: skip records, or read some again.

    What is in the tables stays. Read again, its IDs are known, so it counts as
    duplicates; dead letters, filtered and expired events get another chance. Refused
    where IDs are not known. A driver at work goes on from there by itself.
    """
    from services.endpoints import resolve_endpoints
    from services.pipeline_offsets import offsets_at
    from services.topic_log import TopicLog
    from sinks.postgres import audit, steering
    from sinks.postgres.connection import connect

    endpoints = resolve_endpoints()
    name = pipeline_name(pipeline)
    _check_one_target(to_time, to_offset)
    with connect(endpoints.home_dsn, application_name="tallyweir offsets") as home:
        topics = audit.read_source(home, name).topics
        broker = TopicLog(endpoints.kafka_bootstrap, *topics).read_positions()
        targets = (
            _parse_offsets(to_offset or ())
            if to_time is None
            else offsets_at(endpoints, home, name, _parse_time(to_time), broker)
        )
        moves = steering.reset_offsets(
            home, name, targets, broker, reason=reason, dry_run=dry_run
        )
    if as_json:
        told = [
            {**asdict(move), "skipped": move.skipped, "read_again": move.read_again}
            for move in moves
        ]
        say_json({"pipeline": name, "dry_run": dry_run, "moves": told})
        return
    for move in moves:
        say(tell_move(move))
    say(
        "Nothing was changed (--dry-run)."
        if dry_run
        else f"Pipeline {name} goes on from there; a driver at work does so by itself."
    )


def tell_move(move: MovedPosition) -> str:
    """Say what moving a position means."""
    where = f"{move.topic}[{move.partition}] {move.stood_at:,} -> {move.target:,}"
    if move.skipped:
        return f"{where}: up to {move.skipped:,} records are skipped, never to be read"
    told = f"{where}: up to {move.read_again:,} records are read again\n"
    part = f", {move.cut} of them in part" if move.cut else ""
    told += (
        f"  they are of {move.batches:,} batches{part}, which read {move.read:,} "
        f"records and committed {move.committed:,}\n"
    )
    for table, rows in move.rows.items():
        told += f"  {rows:,} are rows of {table}: they stay, and count as duplicates\n"
    for kind, records in move.put_aside.items():
        fate = "stay so" if kind == "duplicate_event" else "get another chance"
        told += f"  {records:,} are {_PUT_ASIDE[kind]}: they {fate}\n"
    return told.rstrip()


def _line(part: PartitionOffsets) -> tuple[object, ...]:
    headroom = part.headroom_s
    return (
        f"{part.topic}[{part.partition}]",
        f"{part.next_offset:,}",
        "-" if part.next_time is None else part.next_time.isoformat(" ", "seconds"),
        "gone" if part.log_start is None else f"{part.log_start:,}..{part.log_end:,}",
        "-" if part.lag is None else f"{part.lag:,}",
        "-" if headroom is None else f"{headroom / 3600:,.1f} h",
    )


def _check_one_target(to_time: str | None, to_offset: Sequence[str] | None) -> None:
    if (to_time is None) == (not to_offset):
        raise ConfigurationError(
            "RESET_TARGET",
            saw="Either both of --to-time and --to-offset are given, or none.",
            why="The pipeline goes on from one place.",
            fix="Give one of them.",
        )


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigurationError(
            "RESET_TARGET",
            saw=f"--to-time is {text!r}.",
            why="It must be one moment for everybody.",
            fix="Write it like 2026-05-03T04:00:00Z.",
        )
    return moment


def _parse_offsets(texts: Sequence[str]) -> dict[TopicPartition, int]:
    targets: dict[TopicPartition, int] = {}
    for text in texts:
        place, _, offset = text.rpartition("=")
        topic, _, partition = place.rpartition(":")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise ConfigurationError(
                "RESET_TARGET",
                saw=f"--to-offset is {text!r}.",
                why="It must name a partition and an offset.",
                fix="Write it like flights:0=1200.",
            )
        targets[TopicPartition(topic, int(partition))] = int(offset)
    return targets
