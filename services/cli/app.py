"""The ``tallyweir`` command: collects the commands and renders their errors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tallyweir.services.cli.command import add_commands
from tallyweir.services.cli.rendering import render_error
from tallyweir.services.local.embedded.state_directory import is_checkout
from tallyweir.sinks.protocol.errors import ConfigurationError

# Each module has functions that are marked as commands, or a ``GROUP`` of them. All
# modules load at every start, so they import heavy packages (psycopg, confluent_kafka)
# inside the command: ``--help`` stays fast.
COMMAND_MODULES = (
    "tallyweir.services.cli.dev.demo",
    "tallyweir.services.cli.servers.up",
    "tallyweir.services.cli.servers.migrate",
    "tallyweir.services.cli.pipelines.look",
    "tallyweir.services.cli.pipelines.run",
    "tallyweir.services.cli.pipelines.check",
    "tallyweir.services.cli.pipelines.notebook",
    "tallyweir.services.cli.pipelines.templates",
    "tallyweir.services.cli.pipelines.schema",
    "tallyweir.services.cli.pipelines.emit",
    "tallyweir.services.cli.servers.ingest",
    "tallyweir.services.cli.audit.verify",
    "tallyweir.services.cli.audit.why",
    "tallyweir.services.cli.audit.logs",
    "tallyweir.services.cli.audit.samples",
    "tallyweir.services.cli.steering.dead_letters",
    "tallyweir.services.cli.audit.status",
    "tallyweir.services.cli.audit.wait_for",
    "tallyweir.services.cli.servers.monitor",
    "tallyweir.services.cli.servers.alerts",
    "tallyweir.services.cli.audit.profile",
    "tallyweir.services.cli.audit.state",
    "tallyweir.services.cli.steering.pause",
    "tallyweir.services.cli.steering.scale",
    "tallyweir.services.cli.audit.cost",
    "tallyweir.services.cli.steering.erase",
    "tallyweir.services.cli.steering.fork",
    "tallyweir.services.cli.pipelines.pipeline_versions",
    "tallyweir.services.cli.steering.offsets",
    "tallyweir.services.cli.steering.snapshot",
    "tallyweir.services.cli.steering.accept",
    "tallyweir.services.cli.steering.indoubt",
    "tallyweir.services.cli.steering.repair",
    "tallyweir.services.cli.servers.resolver",
    "tallyweir.services.cli.servers.relay",
    "tallyweir.services.cli.dev.chaos",
    "tallyweir.services.cli.servers.kafka_access",
    "tallyweir.services.cli.doctor.doctor",
)
#: They work on the repository, so that only a checkout has them.
CHECKOUT_MODULES = (
    "tallyweir.services.cli.dev.bench",
    "tallyweir.services.cli.dev.images",
    "tallyweir.services.cli.dev.sbom",
    "tallyweir.services.cli.dev.suite",
    "tallyweir.services.cli.dev.mutants",
)


def build_app() -> typer.Typer:
    """Put the command line together from its modules."""
    app = typer.Typer(
        name="tallyweir",
        help="Events from Kafka through Spark into Postgres, each counted once.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # Plain help: examples keep their lines, and pipes get no drawn boxes.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        debug: Annotated[
            bool, typer.Option("--debug", help="Show the stack trace of an error.")
        ] = False,
    ) -> None:
        pass

    own = CHECKOUT_MODULES if is_checkout() else ()
    for module in (*COMMAND_MODULES, *own):
        add_commands(app, importlib.import_module(module))
    return app


def check_arguments(arguments: Sequence[str]) -> None:
    """Check that all arguments are text in the locale's encoding.

    Raises:
        ConfigurationError: ``ARGUMENT_NOT_TEXT``.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(
                "ARGUMENT_NOT_TEXT",
                saw=f"The argument {argument!r} is not text in this locale.",
                why="Tallyweir stores names and reasons as text.",
                fix="Write it in UTF-8, and check LANG and LC_ALL.",
            ) from error


def main() -> int:
    """Run the command in ``sys.argv``; every error becomes lines and an exit code."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        check_arguments(arguments)
        build_app()(arguments, prog_name="tallyweir")
    except Exception as error:  # noqa: BLE001 - the outermost loop of the process
        return render_error(error, debug=debug)
    return 0
