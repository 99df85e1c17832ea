"""Arguments that commands share, and the pipeline, databases and home they name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from tallyweir.services.produce.source_section import (
    PYTHON_ENDING,
    describe_python_pipeline,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow


@contextmanager
def connected_home(command: str) -> Iterator[Connection[TupleRow]]:
    """Connect to the home database; commit when the block ends, roll back if it fails.

    Args:
        command: Name of the command, which Postgres shows.

    Raises:
        ConfigurationError: As ``find_home_dsn`` and ``connect``.
        RetryableError: The server cannot be reached.
    """
    from tallyweir.services.process.endpoints import find_home_dsn
    from tallyweir.sinks.postgres.server.connection import connect

    with connect(find_home_dsn(), application_name=f"tallyweir {command}") as home:
        yield home


PipelineName = Annotated[
    str, typer.Argument(help="Name of a pipeline, or its YAML file.")
]
Reason = Annotated[str, typer.Option(help="Why; the ledger keeps it.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be done.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on one line.")
]
EndsWithJson = Annotated[
    bool, typer.Option("--json", help="End with one line of JSON.")
]
Once = Annotated[bool, typer.Option("--once", help="Do one round and end.")]


_FILE_ENDINGS = (".yaml", ".yml", PYTHON_ENDING)


def pipeline_name(argument: str) -> str:
    """Return a name unchanged, or the name inside a pipeline file.

    It reads only the ``pipeline:`` key of a YAML file: a mistake elsewhere must not
    prevent a look at the pipeline.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE``.
    """
    if not _is_file(argument):
        return argument
    name = read_pipeline_file(argument).get("pipeline")
    if not isinstance(name, str):
        raise _unreadable(Path(argument), "it has no text under the key pipeline")
    return name


def read_pipeline_file(argument: str) -> Mapping[Any, Any]:
    """Return the unchecked keys of a pipeline file; empty for a pipeline's name.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE``.
    """
    if not _is_file(argument):
        return {}
    path = Path(argument)
    if path.suffix == PYTHON_ENDING:
        return describe_python_pipeline(path)
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unreadable(path, " ".join(str(error).split())) from error
    return content if isinstance(content, dict) else {}


def _is_file(argument: str) -> bool:
    return Path(argument).suffix in _FILE_ENDINGS


def _unreadable(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        "PIPELINE_FILE_UNREADABLE",
        saw=f"{path}: {what}.",
        why="The pipeline's name is in its file.",
        fix="Correct the file, or give the pipeline's name instead.",
    )


def pipeline_databases(argument: str) -> dict[str, str]:
    """Return the connection string of every known database, by its name.

    ``TALLYWEIR_DATABASES`` has them, and so has the pipeline file if the user named it.
    A name in neither of them is an error only for a pipeline that has results there.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE`` or ``DATABASES_MALFORMED``.
    """
    from tallyweir.sinks.postgres.server.databases import parse_databases

    declared = read_pipeline_file(argument).get("databases")
    if not isinstance(declared, dict):
        declared = {}
    return dict(
        parse_databases(
            os.environ,
            {
                name: conninfo
                for name, conninfo in declared.items()
                if isinstance(name, str) and isinstance(conninfo, str) and conninfo
            },
        )
    )
