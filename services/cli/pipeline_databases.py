"""Finds the databases of a pipeline from the argument PIPELINE."""

from __future__ import annotations

import os

from tallyweir.services.cli.pipeline_name import read_pipeline_file


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
