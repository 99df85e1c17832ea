"""Names of what Tallyweir makes in Postgres: branches, staging, state, sessions.

Names of a pipeline's objects are built from its number, because an identifier holds
only 63 bytes and a user's name may use them all.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from psycopg import sql

_APPLICATION_NAME = re.compile(r"tallyweir p(\d+) e(\d+)")


def staging_schema(
    pipeline_number: int, epoch: int, *, installation: str | None = None
) -> str:
    """Name the schema of one driver's staging tables in one database.

    In all databases except the home, the name includes the home's installation: two
    homes may give their pipelines the same numbers.
    """
    owner = "" if installation is None else f"{installation}_"
    return f"tallyweir_stage_{owner}{pipeline_number}_{epoch}"


def staging_schema_pattern(pipeline_number: int) -> str:
    """Match the schemas of a pipeline's staging in its home, of any driver."""
    return f"^tallyweir_stage_{pipeline_number}_[0-9]+$"


#: Sets of staging tables, used by alternate batches: one batch is staged while the one
#: before it is published and its set is emptied.
STAGING_SETS = 2


def staging_table(
    pipeline_number: int,
    epoch: int,
    table: str,
    *,
    sequence: int,
    installation: str | None = None,
) -> sql.Identifier:
    """Name a staging table of a driver's batch, by the batch's sequence."""
    schema = staging_schema(pipeline_number, epoch, installation=installation)
    return sql.Identifier(schema, f"{table}.{sequence % STAGING_SETS}")


def application_name(pipeline_number: int, epoch: int) -> str:
    """Name a driver's sessions in ``pg_stat_activity``."""
    return f"tallyweir p{pipeline_number} e{epoch}"


def parse_application_name(name: str) -> tuple[int, int] | None:
    """Read pipeline number and epoch back from the name of a driver's session."""
    found = _APPLICATION_NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


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


def state_table_pattern(pipeline_number: int) -> str:
    """Match the tables of a pipeline's open groups in its home, of any version."""
    return f"^window_state_{pipeline_number}_[0-9a-f]{{12}}$"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNames:
    """Names of the tables that one batch's transaction works with in a database.

    Attributes:
        pipeline_number: The pipeline's number in its home database.
        epoch: The driver's epoch.
        sequence: The batch's sequence.
        installation: The home's installation, in all databases except the home: two
            homes may give their pipelines the same numbers.
    """

    pipeline_number: int
    epoch: int
    sequence: int
    installation: str | None = None

    def staging(self, table: str) -> sql.Identifier:
        """Name a staging table."""
        return staging_table(
            self.pipeline_number,
            self.epoch,
            table,
            sequence=self.sequence,
            installation=self.installation,
        )

    def state(self, table: str) -> sql.Identifier:
        """Name the state of a window table."""
        return state_table(self.pipeline_number, table, installation=self.installation)


#: The home database, and the home's own publish transaction, as outputs name them.
HOME = "home"


def branch_name(database: str, number: int) -> str:
    """Name a branch, such as ``billing.0``."""
    return f"{database}.{number}"


def database_of(branch: str) -> str:
    """Return the database that a branch publishes in."""
    return branch.rpartition(".")[0] or HOME


def staged_for(staging_table: str, branch: str) -> str:
    """Name the staging table of the part of an output that one branch publishes.

    The table is in the branch's database, and votes count its rows under this name.
    """
    return staging_table if branch == HOME else f"{staging_table}@{branch}"


def branch_prefix(installation: str, pipeline_number: int) -> str:
    """Return the common prefix of the global ids of a pipeline's branches."""
    return f"tallyweir:{installation}:{pipeline_number}:"
