"""From what a user types for PIPELINE to where its databases are."""

from __future__ import annotations

import os

from services.cli.pipeline_name import read_pipeline_file


def pipeline_databases(argument: str) -> dict[str, str]:
    """Return the connection string of every database that is known, by its name.

    ``TALLYWEIR_DATABASES`` says where they are, and so does the pipeline file if the
    user named it. A name that neither of them gives is an error only for a pipeline
    that has results there.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE`` or ``DATABASES_MALFORMED``.
    """
    from sinks.postgres.server.databases import parse_databases

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
