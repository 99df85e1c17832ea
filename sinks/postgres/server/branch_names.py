"""How publish transactions beside the home's are named, and what they stage."""

from __future__ import annotations

#: The home database, and the home's own publish transaction, as outputs name them.
HOME = "home"


def branch_name(database: str, number: int) -> str:
    """Name a publish transaction beside the home's: ``billing.0``."""
    return f"{database}.{number}"


def database_of(branch: str) -> str:
    """Return the database that a branch publishes in."""
    return branch.rpartition(".")[0] or HOME


def staged_for(staging_table: str, branch: str) -> str:
    """Name the staging table of the part of an output that one branch publishes.

    It is in the branch's database, and votes count its rows under this name.
    """
    return staging_table if branch == HOME else f"{staging_table}@{branch}"


def branch_prefix(installation: str, pipeline_number: int) -> str:
    """Return what the global ids of a pipeline's branches begin with."""
    return f"tallyweir:{installation}:{pipeline_number}:"
