"""``verify``: checks that the database accounts for every record, once.

``tallyweir.sinks.postgres.audit.verification`` makes the checks; this command prints
the receipt.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallyweir.services.cli.arguments import (
    AsJson,
    PipelineName,
    connected_home,
    pipeline_databases,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say, say_json, say_table
from tallyweir.sinks.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

    from tallyweir.sinks.postgres.audit import Check, Receipt


#: Most rows that are shown of each part of a replay.
_ROWS_SHOWN = 5


@command(
    "tallyweir verify departures",
    "tallyweir verify spark_jobs/pipelines/departures.yaml --recount --json",
    "tallyweir verify spark_jobs/pipelines/departures.yaml --replay",
)
def verify(
    pipeline: PipelineName,
    as_json: AsJson = False,
    recount: Annotated[
        bool,
        typer.Option(
            "--recount", help="Also read Kafka again and compare the number of records."
        ),
    ] = False,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Also recompute the pipeline from Kafka and compare every row. "
            "Needs the pipeline's file.",
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="BATCH|SNAPSHOT",
            help="With --replay: start after this batch, or after a snapshot's batch.",
        ),
    ] = None,
) -> None:
    """Check that every record that was read is accounted for, as often as promised.

    Everything comes from one snapshot of the home database, and of each other one
    that results are in: TALLYWEIR_DATABASES or the pipeline file says where they are.
    A running pipeline is neither stopped nor disturbed. The monitor shows when it was
    verified last, and what was found. Exit code 1 when a check
    fails or when nothing was committed yet; docs/operations.md has a row for each
    check, with what to do then. A replay that could not look at everything ends with 0
    where nothing differs, and names what it has not looked at; with --json,
    replay.verdict tells the two apart.
    """
    from tallyweir.services.process.endpoints import find_endpoints
    from tallyweir.sinks.postgres import audit

    if since is not None and not replay:
        raise typer.BadParameter("--since needs --replay.")
    databases = pipeline_databases(pipeline)
    name = pipeline_name(pipeline)
    with connected_home("verify") as home:
        receipt = audit.verify(home, name, databases)
        if recount:
            check = _recount(home, find_endpoints().kafka_bootstrap, name)
            receipt = receipt.with_check(check)
        found = None
        if replay:
            from tallyweir.sinks.postgres.audit.replay.replay_receipt import (
                check_replay,
            )

            found = _replay(pipeline, since)
            receipt = receipt.with_check(check_replay(found))
        keep_receipt(home, receipt)
    if as_json:
        say_json(receipt.as_json() | ({"replay": found} if found else {}))
    else:
        say_receipt(receipt)
        if found is not None:
            say_replay(found)
    if not receipt.is_verified:
        raise typer.Exit(1)


def keep_receipt(home: Connection[TupleRow], receipt: Receipt) -> None:
    """Keep the receipt for the monitor, if this login may."""
    from tallyweir.sinks.postgres import audit
    from tallyweir.sinks.protocol.errors import TallyweirError

    try:
        audit.note_receipt(home, receipt)
    except TallyweirError as error:
        # Still print the receipt.
        note(f"The receipt could not be stored for the monitor: {error.saw}")


def _replay(pipeline: str, since: str | None) -> Mapping[str, Any]:
    from tallyweir.services.operate.spark_process import run_replay
    from tallyweir.services.process.endpoints import child_environment, find_endpoints

    path = Path(pipeline)
    if not path.is_file():
        raise ConfigurationError(
            "REPLAY_NEEDS_FILE",
            saw=f"--replay was asked for pipeline {pipeline}, by its name.",
            why="A replay needs the pipeline's file, and the files that it names.",
            fix="Name the file that the driver runs.",
        )
    environment = child_environment(find_endpoints())
    asked = [] if since is None else [f"--since={since}"]
    result = run_replay(path, environment, *asked)
    if result.receipt is None:
        # The process has printed why.
        raise typer.Exit(result.exit_code)
    return result.receipt


def say_replay(receipt: Mapping[str, Any]) -> None:
    """Print the result of a replay: each part, the rows that differ, the verdict."""
    from tallyweir.sinks.postgres.audit.replay.replay_receipt import (
        ReplayVerdict,
        describe_row,
    )

    parts = receipt["parts"]
    say_table(
        ("replayed", "rows", "equal", "missing", "extra", "different", "undetermined"),
        [
            (
                part["name"],
                *(
                    f"{part[count]:,}"
                    for count in (
                        *("committed", "equal", "missing", "extra", "different"),
                        "undetermined",
                    )
                ),
            )
            for part in parts
            if not part["not_compared"] and (part["committed"] or part["replayed"])
        ],
    )
    for part in parts:
        if part["not_compared"]:
            say(f"  {part['name']} was not compared: {part['not_compared']}")
        if part["note"]:
            say(f"  {part['name']}: {part['note']}")
        for reason, rows in part["reasons"].items():
            say(f"  {part['name']}: {rows:,} undetermined: {reason}")
        for row in part["rows"][:_ROWS_SHOWN]:
            say(f"  {part['name']}: {describe_row(row)}")
    for one in receipt["notes"]:
        say(f"  {one}")
    if receipt["why_after"]:
        say(
            f"  batches up to {receipt['after_sequence']:,} were not replayed: "
            f"{receipt['why_after']}"
        )
    say(
        f"{receipt['verdict']}: {receipt['batches']:,} batches of "
        f"{receipt['records']:,} records in {receipt['seconds']:,.0f} s"
    )
    if receipt["verdict"] == ReplayVerdict.PARTLY.value:
        say(
            "Everything is verified except what the lines above call not replayed, "
            "not compared or undetermined."
        )


def _recount(home: Connection[TupleRow], bootstrap: str, name: str) -> Check:
    from tallyweir.services.kafka.topic_log import count_committed
    from tallyweir.sinks.kafka_admin import KafkaAdmin
    from tallyweir.sinks.postgres import audit

    admin = KafkaAdmin(bootstrap, *audit.read_source(home, name).topics)
    starts = {
        place: position.log_start_offset
        for place, position in admin.read_positions().items()
    }
    spans = audit.read_recount_spans(home, name, starts)
    counted = count_committed(bootstrap, [span.offsets for span in spans])
    return audit.check_recount(spans, counted)


def say_receipt(receipt: Receipt) -> None:
    """Print a receipt: the verdict, the checks, the failures, the totals."""
    say(f"Pipeline {receipt.pipeline}: {receipt.summary}")
    if len(receipt.databases) > 1:
        say(f"databases checked: {', '.join(receipt.databases)}")
    say_table(
        ("check", "verdict", "checked", "note"),
        [
            (
                check.name,
                check.verdict.value,
                f"{check.checked:,} {check.unit}",
                check.note,
            )
            for check in receipt.checks
        ],
    )
    say_table(
        ("output", "kind", "looked at", "not looked at"),
        [
            (one.output, one.kind, one.looked_at, one.not_looked_at)
            for one in receipt.outputs
        ],
    )
    for check in receipt.failed:
        for violation in check.violations:
            say(f"  {check.name}: {violation}")
        hidden = check.violation_count - len(check.violations)
        if hidden:
            say(f"  {check.name}: and {hidden:,} more")
    totals = receipt.totals
    say(
        f"read {totals.read:,} = committed {totals.committed:,} + duplicate "
        f"{totals.duplicate:,} + dead {totals.dead:,} + late {totals.late:,} + "
        f"expired {totals.expired:,} + filtered {totals.filtered:,}"
    )
    if totals.dead_by_reason:
        reasons = totals.dead_by_reason.items()
        say("dead: " + ", ".join(f"{reason} {events:,}" for reason, events in reasons))
    say(f"{totals.batches:,} batches by {totals.drivers:,} drivers")
