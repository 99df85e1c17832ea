"""How branches and their staging tables are named."""

from __future__ import annotations

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
