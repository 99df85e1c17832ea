"""The ``tallyweir`` command: collects the commands and renders their errors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from services.cli.command import add_commands
from services.cli.rendering import render_error
from services.local.embedded.state_directory import is_checkout
from sinks.protocol.errors import ConfigurationError

# Each module has functions that are marked as commands, or ``register(app)`` for a
# group of them. All modules load at every start, so they import heavy packages
# (psycopg, confluent_kafka) inside the command: ``--help`` stays fast.
COMMAND_MODULES = (
    "services.cli.dev.demo",
    "services.cli.servers.up",
    "services.cli.servers.migrate",
    "services.cli.pipelines.run",
    "services.cli.pipelines.batch",
    "services.cli.pipelines.notebook",
    "services.cli.pipelines.templates",
    "services.cli.pipelines.schema",
    "services.cli.pipelines.emit",
    "services.cli.servers.ingest",
    "services.cli.servers.ingest_keys",
    "services.cli.audit.verify",
    "services.cli.audit.why",
    "services.cli.audit.logs",
    "services.cli.audit.samples",
    "services.cli.steering.dead_letters",
    "services.cli.audit.status",
    "services.cli.audit.wait_for",
    "services.cli.servers.monitor",
    "services.cli.servers.alerts",
    "services.cli.audit.profile",
    "services.cli.servers.monitor_tokens",
    "services.cli.audit.state",
    "services.cli.steering.pause",
    "services.cli.steering.drain",
    "services.cli.steering.scale",
    "services.cli.audit.cost",
    "services.cli.steering.erase",
    "services.cli.steering.fork",
    "services.cli.pipelines.pipeline_versions",
    "services.cli.steering.offsets",
    "services.cli.steering.snapshot",
    "services.cli.steering.accept_gap",
    "services.cli.steering.accept_loss",
    "services.cli.steering.indoubt",
    "services.cli.steering.repair",
    "services.cli.servers.resolver",
    "services.cli.servers.relay",
    "services.cli.dev.bench",
    "services.cli.dev.chaos",
    "services.cli.dev.chaos_templates",
    "services.cli.servers.kafka_access",
    "services.cli.doctor.doctor",
)
#: They work on the repository, so that only a checkout has them.
CHECKOUT_MODULES = (
    "services.cli.dev.images",
    "services.cli.dev.sbom",
    "services.cli.dev.suite",
    "services.cli.dev.mutants",
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
                why="Names and reasons are kept as text.",
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
