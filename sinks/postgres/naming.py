"""Names of the objects that Tallyweir makes for one pipeline.

They are built from the pipeline's number, because an identifier holds 63 bytes only
and a user's name may use them all.
"""

from __future__ import annotations

import hashlib

from psycopg import sql


def staging_schema(
    pipeline_number: int, epoch: int, *, installation: str | None = None
) -> str:
    """Name the schema of one driver's staging tables in one database.

    Everywhere but in the home database the home's installation belongs to the name:
    two homes may have numbered their pipelines alike.
    """
    owner = "" if installation is None else f"{installation}_"
    return f"tallyweir_stage_{owner}{pipeline_number}_{epoch}"


def staging_table(
    pipeline_number: int, epoch: int, table: str, *, installation: str | None = None
) -> sql.Identifier:
    """Name one of a driver's staging tables."""
    schema = staging_schema(pipeline_number, epoch, installation=installation)
    return sql.Identifier(schema, table)


def application_name(pipeline_number: int, epoch: int) -> str:
    """Name a driver's sessions in ``pg_stat_activity``."""
    return f"tallyweir p{pipeline_number} e{epoch}"


def state_table(
    pipeline_number: int, table: str, *, installation: str | None = None
) -> sql.Identifier:
    """Name the table of a window output's open groups, by the output's table.

    ``installation`` as in ``staging_schema``.
    """
    digest = hashlib.sha256(table.encode()).hexdigest()[:12]
    owner = "" if installation is None else f"{installation}_"
    return sql.Identifier(
        "tallyweir_state", f"window_state_{owner}{pipeline_number}_{digest}"
    )


def revisions_table(table: str) -> str:
    """Name the table that keeps a window table's former values."""
    return f"{table}_revisions"


def runs_of_pipeline(pipeline_number: int) -> str:
    """Name the part of the seen-ID catalog that one pipeline owns."""
    return f"seen_id_run_p{pipeline_number}"


def bucket_of_runs(table: str) -> int:
    """Read the bucket back from the name that ``tallyweir.name_bucket`` gave."""
    digits = table.rsplit("_b", 1)[1]
    return -int(digits[1:]) if digits.startswith("m") else int(digits)
