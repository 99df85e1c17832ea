"""``demo``: sends real flights under hostile conditions, and prints the receipt."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated, Self

import typer

from tallyweir.services.cli.arguments import EndsWithJson
from tallyweir.services.cli.audit.verify import say_receipt
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say, say_json, use_rich
from tallyweir.services.cli.signals import end_once_on_signals
from tallyweir.sinks.protocol.errors import FatalError

if TYPE_CHECKING:
    from tallyweir.services.dev.demo.demo_world import DemoWorld
    from tallyweir.services.dev.demo.drill import DemoProgress, DrillReport
    from tallyweir.services.dev.demo.live_screen import LiveScreen
    from tallyweir.services.dev.demo.scenario import Scenario
    from tallyweir.sinks.postgres.audit import Receipt

_FLIGHTS_TOTAL = 336_776


@command(
    "tallyweir demo",
    "tallyweir demo --events 20000 --keep",
    "tallyweir demo --events 20000 --seed 7 --json",
)
def demo(
    events: Annotated[
        int,
        typer.Option(
            min=1, max=_FLIGHTS_TOTAL, help="How many flights to send, from the first."
        ),
    ] = _FLIGHTS_TOTAL,
    seed: Annotated[
        int, typer.Option(help="Same seed, same faults and same counts.")
    ] = 7,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the servers running.")
    ] = False,
    external: Annotated[
        bool,
        typer.Option(
            "--external", help="Only send and count: the pipeline runs elsewhere."
        ),
    ] = False,
    as_json: EndsWithJson = False,
) -> None:
    """Send real flights, break things on the way, and count what arrived.

    A fifth of the flights is sent twice and a hundredth is broken; the Spark driver
    is killed twice in mid-batch and loses its checkpoint once. Kafka and Postgres are
    the demo's own, unless TALLYWEIR_KAFKA_BOOTSTRAP or TALLYWEIR_HOME_DSN names one.
    With --external the pipeline departures of a system that runs already does the work,
    and nothing is killed. Exit code 0 only when every event is accounted for, once.
    """
    from tallyweir.services.dev.demo.demo_world import demo_world
    from tallyweir.services.dev.demo.drill import run_drill
    from tallyweir.services.dev.demo.external import external_world, send_and_wait
    from tallyweir.services.dev.demo.independent_checks import verify_results
    from tallyweir.services.dev.demo.scenario import write_scenario

    started = time.monotonic()
    end_once_on_signals()
    scenario = write_scenario(events, seed)
    screen = _screen(scenario)
    screen.tell(f"{events:,} flights, seed {seed}")
    with external_world() if external else demo_world(keep=keep) as world:
        with screen:
            screen.tell(f"Kafka at {world.endpoints.kafka_bootstrap}: {world.topic}")
            run = send_and_wait if external else run_drill
            report = run(world, scenario, screen)
            screen.tell("verifying, and counting the tables independently")
            receipt = verify_results(world, report)
        say_receipt(receipt)
        _say_where(world, keep=keep)
        if as_json:
            seconds = time.monotonic() - started
            say_json(_as_json(world, receipt, report, seconds))
        if not receipt.is_verified:
            raise _not_verified(world, receipt)


class _PlainScreen:
    """A screen that writes lines to a file or a pipe."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, text: str) -> None:
        note(text)

    def show(self, progress: DemoProgress) -> None:
        """Show nothing: the lines tell the progress, batch by batch."""


def _screen(scenario: Scenario) -> _PlainScreen | LiveScreen:
    if not use_rich(sys.stderr):
        return _PlainScreen()
    from tallyweir.services.dev.demo.live_screen import LiveScreen

    return LiveScreen(scenario.messages)


def _say_where(world: DemoWorld, *, keep: bool) -> None:
    from tallyweir.services.dev.demo.demo_world import PIPELINE, TABLES, Ledger
    from tallyweir.services.local.embedded.postgres import psql_line
    from tallyweir.services.process.endpoints import launcher

    look = shlex.join(filter(None, ["psql", world.shown_dsn]))
    if world.has_own_servers:
        look = psql_line(world.shown_dsn, world.pass_file)
    say(f"Tables: {', '.join(TABLES)} in the database at {world.shown_dsn}")
    say(f"  look in:  {look}")
    if not world.has_own_servers:
        say(f"  They stay there, and so does the topic {world.topic}.")
        return
    if not keep:
        say("  The demo's servers stop now and their data is deleted; with --keep")
        say("  they stay, and the line above works.")
        return
    command = f"TALLYWEIR_STATE_DIR={shlex.quote(str(world.directory))} {launcher()}"
    repeated = Ledger(world.home, PIPELINE).read_repeated_id()
    say(f"  ask:      {command} why {PIPELINE} {repeated}")
    say(f"  stop:     {command} down --delete-data")


def _as_json(
    world: DemoWorld, receipt: Receipt, report: DrillReport, seconds: float
) -> dict[str, object]:
    totals = receipt.totals
    return {
        "sent": report.expectation.sent,
        "unique": report.expectation.unique_valid,
        "committed": totals.committed,
        "duplicate": totals.duplicate,
        "dead": totals.dead,
        "late": totals.late,
        "expired": totals.expired,
        "driver_kills": report.kills,
        "checkpoint_deletions": report.checkpoint_deletions,
        "verified": receipt.is_verified,
        "dsn": world.shown_dsn,
        "bootstrap": world.endpoints.kafka_bootstrap,
        "seconds": round(seconds, 1),
    }


def _not_verified(world: DemoWorld, receipt: Receipt) -> FatalError:
    return FatalError(
        "DEMO_NOT_VERIFIED",
        saw=f"{receipt.summary}.",
        why="The tables do not account for every event exactly once.",
        fix=f"Report it with the lines above; all files are left in {world.directory}.",
    )
