"""``pause``, ``drain`` and ``resume``: stop a pipeline's publishing, and let it go on.

Crash:
    ``pause`` and ``resume`` are one commit each. If one dies before the commit, nothing
    has changed. If it dies after the commit, the next call reports that it is done.

    The request of ``drain`` is one commit, and the driver's end of the drain is
    another. If the command dies in between, call it again in the same way: it waits for
    the same drain.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallyweir.services.cli.arguments import (
    AsJson,
    DryRun,
    PipelineName,
    Reason,
    connected_home,
    pipeline_databases,
    pipeline_name,
)
from tallyweir.services.cli.audit.verify import keep_receipt, say_receipt
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import (
    UNCHANGED,
    note,
    say,
    say_done,
    say_json,
    say_table,
)
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

    from tallyweir.sinks.postgres.audit import Receipt
    from tallyweir.sinks.postgres.ledger.epoch_claims import Drain
    from tallyweir.sinks.postgres.steering import DrainOutcome


_POLL_S = 0.2
#: Seconds after which the command says again what it waits for.
_TELL_S = 10.0


@command(
    "tallyweir drain departures --close-windows --reason 'the airport closes'",
    "tallyweir drain departures --keep-windows --reason 'we move house' --dry-run",
)
def drain(  # noqa: PLR0913, PLR0917 - each is an option
    pipeline: PipelineName,
    close_windows: Annotated[
        bool,
        typer.Option(
            "--close-windows/--keep-windows",
            help="Settle open windows and event-time timers now, or keep them until "
            "the pipeline goes on.",
        ),
    ],
    reason: Reason,
    dry_run: DryRun = False,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Longest time to wait.")
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Read nothing more of a pipeline, finish what there is, and verify it.

    The driver ends it: it closes what is to be closed, pauses the pipeline and ends.
    Without a driver, which is said at once, the drain waits for the next one that is
    started. Nothing is lost
    that is not read: a driver goes on there after `resume`, which also calls off a
    drain that has not ended. Exit code 75 when the time is over: the same call waits
    on. Exit code 1 when it is drained and not verified.
    """
    from tallyweir.services.operate.steering.act_reports import waiting_told
    from tallyweir.sinks.postgres import audit, steering

    name, databases = pipeline_name(pipeline), pipeline_databases(pipeline)
    request = steering.ActRequest(
        pipeline=name, kind="drain", reason=reason, dry_run=dry_run
    )
    with connected_home("drain") as home:
        asked = steering.drain(home, request, closes_windows=close_windows)
        waiting = audit.read_waiting(home, name, databases)
        if not as_json:
            for line in waiting_told(waiting, closes_windows=close_windows):
                say(line)
        if asked is None:
            if as_json:
                say_json({"drained": False, "waiting": asdict(waiting)})
            else:
                say(f"Pipeline {name} can be drained. {UNCHANGED}")
            return
        outcome = _await_end(home, name, asked, timeout)
        receipt = audit.verify(home, name, databases)
        keep_receipt(home, receipt)
        offsets = audit.read_next_offsets(home, name)
    _say_end(outcome, receipt, offsets, as_json=as_json)
    if not receipt.is_verified:
        raise typer.Exit(1)


def _await_end(
    home: Connection[TupleRow], name: str, asked: Drain, timeout: float
) -> DrainOutcome:
    from tallyweir.sinks.postgres import steering

    began = time.monotonic()
    tells_at = began
    while True:
        outcome = steering.read_drain_outcome(home, name, asked)
        if outcome.is_drained:
            return outcome
        if outcome.is_called_off:
            raise ConfigurationError(
                "DRAIN_CALLED_OFF",
                saw=f"An operator has resumed pipeline {name}.",
                why="The pipeline reads again, so it is not drained.",
                fix="Nothing to do; to drain it after all, run tallyweir drain again.",
            )
        now = time.monotonic()
        if now >= tells_at:
            note(_waited_for(home, name, asked))
            tells_at = now + _TELL_S
        if now - began >= timeout:
            raise RetryableError(
                "DRAIN_UNFINISHED",
                saw=f"After {timeout:g} s pipeline {name} is not drained.",
                why="Only a driver can finish a drain. No driver runs, or the driver "
                "still has much to close.",
                fix="Start the driver, or repeat the command to keep waiting; "
                f"tallyweir status {name} shows which, and tallyweir resume {name} "
                "calls the drain off.",
            )
        time.sleep(_POLL_S)


def _waited_for(home: Connection[TupleRow], name: str, asked: Drain) -> str:
    """Return what a drain waits for, as far as this role sees other connections."""
    from tallyweir.sinks.postgres import audit

    driver = audit.read_driver(home, name)
    if driver is not None and driver.is_connected:
        return f"{name} is {asked.told()}; its driver ends it"
    return (
        f"{name} is {asked.told()}. NO DRIVER IS AT WORK that could end it, as far as "
        "this role can see: start it (tallyweir run FILE), or call the drain off "
        f"(tallyweir resume {name})"
    )


def _say_end(
    outcome: DrainOutcome,
    receipt: Receipt,
    offsets: Mapping[Any, int],
    *,
    as_json: bool,
) -> None:
    if as_json:
        say_json(
            {
                "drained": True,
                "asked_after": outcome.asked_after,
                "drained_after": outcome.drained_after,
                "next_offsets": {str(tp): at for tp, at in sorted(offsets.items())},
                "receipt": receipt.as_json(),
            }
        )
        return
    say(f"Drained after batch {outcome.drained_after}. It would read on at:")
    say_table(
        ("partition", "next offset"),
        [(str(place), f"{offset:,}") for place, offset in sorted(offsets.items())],
    )
    say_receipt(receipt)


@command("tallyweir pause departures --reason 'airports reload until 10:00'")
def pause(
    pipeline: PipelineName,
    reason: Annotated[
        str, typer.Option(help="Why, and until when; the ledger keeps it.")
    ],
    dry_run: DryRun = False,
) -> None:
    """Let nothing of a pipeline be published until `resume`, wherever its driver runs.

    A driver at work drops the batch at hand whole and waits; it need not answer.
    What comes meanwhile waits in Kafka: watch its retention.
    """
    from tallyweir.sinks.postgres import steering

    name = pipeline_name(pipeline)
    with connected_home("pause") as home:
        paused = steering.pause(home, name, reason=reason, dry_run=dry_run)
    if paused is None:
        say(f"Pipeline {name} can be paused. {UNCHANGED}")
        return
    say(
        f"Pipeline {name} is paused after batch {paused.last_sequence}. "
        f"It goes on with: tallyweir resume {name}"
    )


@command("tallyweir resume departures")
def resume(pipeline: PipelineName, dry_run: DryRun = False) -> None:
    """End a pause, or call off a drain: a driver that waits goes on within seconds."""
    from tallyweir.sinks.postgres import steering

    name = pipeline_name(pipeline)
    with connected_home("resume") as home:
        ended = steering.resume(home, name, dry_run=dry_run)
    say(f"Pipeline {name} was {ended.told()}.")
    say_done("It goes on; a driver that waits claims an epoch.", dry_run=dry_run)
