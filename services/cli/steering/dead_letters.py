"""``dead-letters``: shows records that became no result, and sends them again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.arguments import (
    DryRun,
    PipelineName,
    connected_home,
    pipeline_name,
)
from tallyweir.services.cli.rendering import example, say, say_json, say_table
from tallyweir.sinks.protocol.errors import ConfigurationError

GROUP = typer.Typer(
    name="dead-letters",
    help="Records that could not become results: list, show and redrive them.",
    no_args_is_help=True,
    epilog=example("tallyweir dead-letters list departures"),
)


@GROUP.command(
    "list",
    epilog=example(
        "tallyweir dead-letters list departures",
        "tallyweir dead-letters list departures --group UNKNOWN_SCHEMA",
    ),
)
def list_letters(
    pipeline: PipelineName,
    group: Annotated[
        str | None,
        typer.Option(help="List the dead letters of this reason one by one."),
    ] = None,
    skip: Annotated[int, typer.Option(min=0, help="Skip this many.")] = 0,
) -> None:
    """List dead letters by reason, or 50 of one reason, newest batches first."""
    from tallyweir.sinks.postgres import audit

    name = pipeline_name(pipeline)
    with connected_home("dead-letters") as home:
        if group is None:
            say_table(
                ("reason", "letters", "redriven", "last batch", "one of them"),
                [
                    (g.reason, g.letters, g.redriven, g.last_sequence, g.last_detail)
                    for g in audit.group_dead_letters(home, name)
                ],
            )
            return
        found = audit.read_dead_letters(home, name, group, skipped=skip)
    say_table(
        ("record", "batch", "id", "redriven to", "detail"),
        [
            (
                f"{one.topic}/{one.partition}/{one.offset}",
                one.sequence,
                one.event_id or "-",
                _redriven_to(
                    one.topic, one.redriven_at, one.new_partition, one.new_offset
                ),
                one.detail,
            )
            for one in found
        ],
    )


def _redriven_to(topic: str, at: object, partition: object, offset: object) -> str:
    if at is None:
        return "-"
    return "perhaps" if offset is None else f"{topic}/{partition}/{offset}"


@GROUP.command(
    epilog=example("tallyweir dead-letters show departures.yaml flights/0/41")
)
def show(
    pipeline: PipelineName,
    record: Annotated[str, typer.Argument(help="TOPIC/PARTITION/OFFSET.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON.")
    ] = False,
) -> None:
    """Show what a record holds: in hex, and decoded as far as it goes.

    With the first field that fails and its byte, what its writer writes otherwise, and
    each time that it was sent again. Contracts that are files beside the pipeline file
    are found when that file is given.
    """
    from contextlib import closing

    from tallyweir.services.operate.redrive.letter_report import letter_json, told
    from tallyweir.services.operate.redrive.source_records import (
        KnownRecord,
        SourceRecords,
        parse_record,
    )
    from tallyweir.services.process.endpoints import find_endpoints
    from tallyweir.sinks.postgres import audit

    name = pipeline_name(pipeline)
    place = parse_record(record)
    endpoints = find_endpoints()
    with connected_home("dead-letters") as home:
        letter = audit.read_letter(
            home,
            name,
            topic=place.topic,
            partition=place.partition,
            offset=place.offset,
        )
    wanted = KnownRecord(position=place, key=letter.key, payload=letter.payload)
    with closing(SourceRecords(endpoints.kafka_bootstrap)) as records:
        headers = records.read_headers([wanted]).get(place)
    path = Path(pipeline)
    found = letter_json(letter, headers, path if path.exists() else None)
    if as_json:
        say_json(found)
        return
    for line in told(found):
        say(line)


@GROUP.command(
    epilog=example(
        "tallyweir dead-letters redrive departures --group UNKNOWN_SCHEMA "
        "--reason 'flight_departure.v2 is known now' --dry-run",
        "tallyweir dead-letters redrive departures --record flights/0/41 "
        "--reason 'airport added'",
    )
)
def redrive(  # noqa: PLR0913, PLR0917 (a command's options are its parameters)
    pipeline: PipelineName,
    reason: Annotated[
        str, typer.Option(help="What was wrong and what was done; the ledger keeps it.")
    ],
    group: Annotated[
        str | None, typer.Option(help="The dead letters of this reason code.")
    ] = None,
    record: Annotated[
        str | None, typer.Option(help="The dead letter at TOPIC/PARTITION/OFFSET.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also records that were redriven before.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Send dead letters to their topic again, as they were, once their cause is mended.

    With key, payload and headers, to their partition, in the order of positions. The
    driver reads them like anything else. A dead letter claims no ID, so two copies of
    it count once; docs/dead-letters.md tells what holds without IDs.
    """
    from tallyweir.services.operate.redrive.redriver import redrive as send_again
    from tallyweir.services.operate.redrive.source_records import parse_record
    from tallyweir.services.process.endpoints import find_endpoints
    from tallyweir.sinks.postgres.steering import RedriveSelection

    name = pipeline_name(pipeline)
    if [group is not None, record is not None, everything].count(True) != 1:
        raise ConfigurationError(
            "REDRIVE_UNCLEAR",
            saw="The command needs exactly one of --group, --record and --all.",
            why="Records that are sent to a topic cannot be taken back.",
            fix=f"tallyweir dead-letters list {name} shows the groups.",
        )
    endpoints = find_endpoints()
    selection = RedriveSelection(
        pipeline=name,
        group=group,
        record=None if record is None else parse_record(record),
    )
    with connected_home("dead-letters") as home:
        report = send_again(
            home,
            endpoints.kafka_bootstrap,
            selection,
            reason=reason,
            again=again,
            dry_run=dry_run,
        )
    for line in report.told(dry_run=dry_run):
        say(line)
