"""``offsets``: shows and moves a pipeline's positions, and accepts recreated topics.

Crash:
    A reset is one commit. If the command dies before the commit, nothing has changed.
    If it dies after the commit, the next call finds nothing to do and says so.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import (
    AsJson,
    PipelineName,
    Reason,
    connected_home,
    pipeline_name,
)
from tallyweir.services.cli.rendering import example, say, say_done, say_json, say_table

if TYPE_CHECKING:
    from tallyweir.services.kafka.pipeline_offsets import PartitionOffsets


GROUP = typer.Typer(
    name="offsets",
    help="Show or move the offsets that a pipeline reads next.",
    no_args_is_help=True,
    epilog=example("tallyweir offsets show departures"),
)


@GROUP.command(
    epilog=example(
        "tallyweir offsets show departures",
        "tallyweir offsets show departures --json",
    )
)
def show(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Show of each partition the next offset, its record's time, the log, and the lag.

    Headroom is the time until Kafka deletes the next record by retention.ms of the
    topic; with nothing left to read there is no such record.
    """
    from tallyweir.services.kafka.pipeline_offsets import read_offsets
    from tallyweir.services.process.endpoints import find_endpoints

    name = pipeline_name(pipeline)
    found = read_offsets(find_endpoints(), name, now=datetime.now(UTC))
    if as_json:
        say_json({"pipeline": name, "partitions": [asdict(part) for part in found]})
        return
    say_table(
        ("partition", "next", "its record's time", "log", "lag", "headroom"),
        [_line(part) for part in found],
    )


@GROUP.command(
    epilog=example(
        "tallyweir offsets reset departures --to-time 2026-05-03T04:00:00Z \\",
        "    --reason 'contract v2 reads what v1 called dead' --dry-run",
        "tallyweir offsets reset departures --to-offset flights:0=1200 \\",
        "    --to-offset flights:1=1180 --reason 'a poisoned upload'",
    )
)
def reset(  # noqa: PLR0913, PLR0917 - options of a command
    pipeline: PipelineName,
    reason: Reason,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Go on with the first record of each partition from this time: ISO "
            "8601, with a time zone.",
        ),
    ] = None,
    to_offset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:PARTITION=OFFSET",
            help="Go on with this offset; repeat the option for each partition to "
            "move.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the effect.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let a pipeline go on from other offsets: skip records, or read some again.

    What is in the tables stays. Read again, its IDs are known, so it counts as
    duplicates; dead letters, filtered and expired events get another chance. Refused
    where IDs are not known. A driver at work goes on from there by itself.
    """
    from tallyweir.services.operate.steering.position_acts import (
        move_positions,
        move_told,
        parse_target,
    )
    from tallyweir.services.process.endpoints import find_endpoints

    endpoints = find_endpoints()
    name = pipeline_name(pipeline)
    target = parse_target(to_time, to_offset or ())
    with connected_home("offsets") as home:
        moves = move_positions(
            home,
            endpoints.kafka_bootstrap,
            name,
            target,
            reason=reason,
            dry_run=dry_run,
        )
    if as_json:
        told = [
            {**asdict(move), "skipped": move.skipped, "read_again": move.read_again}
            for move in moves
        ]
        say_json({"pipeline": name, "dry_run": dry_run, "moves": told})
        return
    for move in moves:
        say("\n".join(move_told(move)))
    say_done(
        f"Pipeline {name} goes on from there; a driver at work does so by itself.",
        dry_run=dry_run,
    )


@GROUP.command(
    "accept-topic",
    epilog=example(
        "tallyweir offsets accept-topic departures \\",
        "    --reason 'the topic was recreated with 12 partitions' --dry-run",
    ),
)
def accept_topic(
    pipeline: PipelineName,
    reason: Reason,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Do everything, then undo it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read a topic from its start that was deleted and made again (TOPIC_RECREATED).

    Seen IDs, windows, state and rows stay. What was read of the former topic is noted
    under former:ID:TOPIC from now on, in the ledger and in the column kafka_topic of
    the result tables. Refused where no topic has another id than before.
    """
    from tallyweir.services.operate.steering.position_acts import (
        accept_recreated,
        accepted_told,
    )
    from tallyweir.services.process.endpoints import find_endpoints

    endpoints = find_endpoints()
    name = pipeline_name(pipeline)
    with connected_home("offsets") as home:
        accepted = accept_recreated(
            home, endpoints.kafka_bootstrap, name, reason=reason, dry_run=dry_run
        )
    if as_json:
        told = [asdict(one) for one in accepted]
        say_json({"pipeline": name, "dry_run": dry_run, "topics": told})
        return
    for one in accepted:
        say("\n".join(accepted_told(one)))
    say_done(f"Pipeline {name} can start, and reads from there.", dry_run=dry_run)


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
