"""Compares the decisions of the home database with the markers of every database.

A branch leaves its marker in the transaction that commits its rows, so a snapshot with
the marker has all of the rows and one without it has none. Decisions are read before
markers; hence::

    decided and marked              committed
    decided, noted as committed,
        and not marked              lost
    decided and not marked          in doubt if it is prepared, lost if it is not
    marked and not decided          committed against the home's will, unless the
                                    decision has come since
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    AuditedDatabase,
    AuditedDatabases,
)
from tallyweir.sinks.postgres.audit.receipt import Check, judge, not_applicable
from tallyweir.sinks.postgres.ledger.audited_pipeline import AuditedPipeline, fetch
from tallyweir.sinks.postgres.server.naming import branch_prefix, database_of
from tallyweir.sinks.postgres.server.statements import load_statements

_BRANCHES = load_statements("tallyweir.sinks.postgres.audit.checks", "branches.sql")
_ALL = sql.SQL("true")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedBranch:
    """A branch with which a batch was committed."""

    sequence: int
    branch: str
    gid: str
    #: When a driver or resolver saw it committed; None until then.
    committed_at: datetime | None
    decided_at: datetime

    @property
    def database(self) -> str:
        return database_of(self.branch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The row that a branch leaves in its database when it is committed."""

    sequence: int
    branch: str
    gid: str
    rows: int
    #: Digests by output and kind of table; None if they were not kept yet.
    digests: Mapping[str, Mapping[str, Mapping[str, int]]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFindings:
    """Decisions and markers, each as of the moment it was read.

    Attributes:
        decided: All decisions in the home's snapshot, by global id.
        markers: The pipeline's markers, by the database that holds them.
    """

    decided: Mapping[str, DecidedBranch]
    markers: Mapping[str, tuple[Marker, ...]]

    @property
    def unmarked(self) -> tuple[DecidedBranch, ...]:
        """Decided branches without a marker in the snapshot of their database."""
        found = {
            (name, marker.gid)
            for name, markers in self.markers.items()
            for marker in markers
        }
        return tuple(
            branch
            for branch in self.decided.values()
            if (branch.database, branch.gid) not in found
        )

    @property
    def pending_sequences(self) -> frozenset[int]:
        """Batches not known to be committed whole and not whole in the snapshots.

        Some of their rows may still be missing.
        """
        return frozenset(
            branch.sequence for branch in self.unmarked if branch.committed_at is None
        )

    def marked_rows(self, database: str) -> dict[int, int]:
        """Return how many rows each batch brought into a database, by its markers."""
        rows: dict[int, int] = defaultdict(int)
        for marker in self.markers[database]:
            if database_of(marker.branch) == database:
                rows[marker.sequence] += marker.rows
        return rows


def read_used_databases(home: Connection[TupleRow], pipeline: str) -> set[str]:
    """Name every database for which a branch of the pipeline was ever decided."""
    rows = fetch(home, _BRANCHES["branches_used"], pipeline=pipeline)
    return {database_of(row["branch"]) for row in rows}


def read_branches_of(
    home: Connection[TupleRow], pipeline: str, sequences: Iterable[int]
) -> tuple[DecidedBranch, ...]:
    """Read the branches with which the given batches were committed."""
    return _read_decided(
        home,
        pipeline,
        sql.SQL("decided.sequence = ANY (%(sequences)s)"),
        sequences=sorted(sequences),
    )


def read_unresolved(
    home: Connection[TupleRow], pipeline: str
) -> tuple[DecidedBranch, ...]:
    """Read the decided branches that no resolver has seen committed.

    They may be committed by now.
    """
    return _read_decided(home, pipeline, sql.SQL("decided.committed_at IS NULL"))


def _read_decided(
    home: Connection[TupleRow],
    pipeline: str,
    only: sql.SQL = _ALL,
    **values: object,
) -> tuple[DecidedBranch, ...]:
    statement = _BRANCHES["decided_branches"].format(only=only)
    rows = fetch(home, statement, pipeline=pipeline, **values)
    return tuple(DecidedBranch(**row) for row in rows)


def read_prepared(
    database: AuditedDatabase, pipeline: AuditedPipeline
) -> dict[str, float]:
    """Return the branches that are still prepared, with their age in seconds."""
    rows = database.fetch(
        _BRANCHES["prepared"],
        prefix=branch_prefix(pipeline.installation, pipeline.number),
    )
    return {row["gid"]: row["age_s"] for row in rows}


def read_marked(database: AuditedDatabase, gids: Iterable[str]) -> set[str]:
    """Return which of the given branches are committed in their database."""
    if not has_markers(database):
        return set()
    rows = database.fetch(_BRANCHES["marked_among"], gids=list(gids))
    return {row["gid"] for row in rows}


def read_branches(
    databases: AuditedDatabases, pipeline: AuditedPipeline
) -> BranchFindings:
    """Read decisions, then markers, inside the caller's snapshots."""
    decided = _read_decided(databases.home.connection, pipeline.name)
    return BranchFindings(
        decided={branch.gid: branch for branch in decided},
        markers={
            name: _read_markers(database, pipeline)
            for name, database in databases.by_name.items()
        },
    )


def check_branches(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    found: BranchFindings,
    violations: Iterable[str],
) -> Check:
    """Check that every database has committed all decided branches, and no others.

    A decision and its branches are not committed at the same moment, so the check reads
    again what did not agree. The snapshots must have ended before.

    Args:
        databases: The pipeline's databases.
        pipeline: The pipeline to audit.
        found: What the snapshots had.
        violations: Known violations of the row counts in markers.
    """
    markers = sum(len(of_database) for of_database in found.markers.values())
    if not found.decided and not markers and not databases.beside_home:
        return not_applicable(
            "branches", unit="branches", why="every result is in the home database"
        )
    lost, in_doubt = _look_for_unmarked(databases, pipeline, found)
    return judge(
        "branches",
        checked=len(found.decided),
        unit="branches",
        violations=[*lost, *_undecided(databases, pipeline, found), *violations],
        note=f"in doubt: {', '.join(in_doubt)}" if in_doubt else "",
    )


def _look_for_unmarked(
    databases: AuditedDatabases, pipeline: AuditedPipeline, found: BranchFindings
) -> tuple[list[str], list[str]]:
    """Return what is lost, and what is in doubt or was when the snapshot was taken."""
    lost: list[str] = []
    in_doubt: list[str] = []
    by_database: dict[str, list[DecidedBranch]] = defaultdict(list)
    for branch in found.unmarked:
        by_database[branch.database].append(branch)
    for name, branches in sorted(by_database.items()):
        database = databases.by_name[name]
        # List the prepared branches before the markers: a committed branch writes its
        # marker before it stops being prepared, so one of the two reads must show it.
        prepared = read_prepared(database, pipeline)
        marked = read_marked(database, [branch.gid for branch in branches])
        for branch in branches:
            which = f"{branch.branch} of batch {branch.sequence}"
            if branch.committed_at is not None:
                lost.append(
                    f"{which} is noted as committed, but {name} has no marker of it"
                )
            elif branch.gid in marked:
                in_doubt.append(f"{which} (committed since)")
            elif branch.gid in prepared:
                in_doubt.append(f"{which} for {prepared[branch.gid]:.0f} s")
            else:
                lost.append(
                    f"{which} is decided, but neither prepared nor committed in {name}"
                )
    return lost, in_doubt


def _undecided(
    databases: AuditedDatabases, pipeline: AuditedPipeline, found: BranchFindings
) -> Iterator[str]:
    """Name the markers for which the home has no matching decision."""
    strange = [
        (name, marker)
        for name, markers in found.markers.items()
        for marker in markers
        if not _agrees(marker, found.decided.get(marker.gid))
    ]
    if not strange:
        return
    since = {
        (row["gid"], row["sequence"], row["branch"])
        for row in databases.home.fetch(
            _BRANCHES["decided_among"],
            pipeline=pipeline.name,
            gids=[marker.gid for _, marker in strange],
        )
    }
    for name, marker in strange:
        if (marker.gid, marker.sequence, marker.branch) not in since:
            yield (
                f"{name} has a marker of {marker.branch} of batch {marker.sequence}, "
                f"{marker.gid}, that home never decided"
            )


def _agrees(marker: Marker, decided: DecidedBranch | None) -> bool:
    return decided is not None and (marker.sequence, marker.branch) == (
        decided.sequence,
        decided.branch,
    )


def _read_markers(
    database: AuditedDatabase, pipeline: AuditedPipeline
) -> tuple[Marker, ...]:
    if not has_markers(database):
        return ()
    rows = database.fetch(
        _BRANCHES["markers"],
        installation=pipeline.installation,
        pipeline_number=pipeline.number,
    )
    return tuple(Marker(**row) for row in rows)


def has_markers(database: AuditedDatabase) -> bool:
    """Tell whether a database has the table of markers."""
    (row,) = database.fetch(_BRANCHES["has_markers"])
    return bool(row["present"])
