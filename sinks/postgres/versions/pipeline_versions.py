"""The versions of a pipeline, as the ledger keeps them: the newest one is in force.

The functions work in the caller's transaction. A transaction that adds a version holds
the pipeline's row, so versions are numbered without gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow, class_row
from psycopg.types.json import Jsonb

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.postgres.versions.held_knowledge import HeldKnowledge
from tallyweir.sinks.postgres.versions.version_plan import DescribedVersion
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import Epoch

_SQL = load_statements("tallyweir.sinks.postgres.versions", "versions.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineVersion:
    """A version that is or was in force.

    Attributes:
        version: Counted from 1.
        layout: As ``layout_to_json`` wrote it; None until a driver has noted it.
        from_sequence: The last batch before it came into force.
        epoch: The claim that made it; None for what ran before versions were kept.
        is_announced: Whether an operator asked for it, and not just a driver's start.
        watched_batches: How many batches the driver watches before it trusts it.
    """

    version: int
    definition: Mapping[str, Any]
    definition_hash: str
    layout: Mapping[str, Any] | None
    held: Mapping[str, Any]
    file_text: str | None
    from_sequence: int
    epoch: int | None
    is_announced: bool
    reason: str
    rolls_back_to: int | None
    watched_batches: int
    made_by: str
    made_at: datetime

    @property
    def knowledge(self) -> HeldKnowledge:
        """What the version's windows and IDs do not know."""
        return HeldKnowledge.from_json(self.held)

    def described(self) -> DescribedVersion:
        """Return what another version is compared with.

        Raises:
            ConfigurationError: ``LAYOUT_UNKNOWN``.
        """
        if self.layout is None:
            raise ConfigurationError(
                "LAYOUT_UNKNOWN",
                saw=f"The ledger does not know the tables of version {self.version}.",
                why="It ran before versions were recorded, and the pipeline cannot "
                "continue its open windows without this information.",
                fix="Start the pipeline once with the file that it ran with, or update "
                "to that file's content.",
            )
        return DescribedVersion(
            definition=self.definition,
            definition_hash=self.definition_hash,
            layout=self.layout,
            file_text=self.file_text,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """How a version comes into force.

    Attributes:
        epoch: The claim that makes it.
        from_sequence: The last batch that was published.
    """

    epoch: Epoch
    from_sequence: int
    reason: str
    is_announced: bool = False
    rolls_back_to: int | None = None
    watched_batches: int = 0


def read_versions(
    connection: Connection[TupleRow], pipeline: str
) -> list[PipelineVersion]:
    """Return all versions, the newest first."""
    with connection.cursor(row_factory=class_row(PipelineVersion)) as cursor:
        return cursor.execute(_SQL["versions"], {"pipeline": pipeline}).fetchall()


def read_in_force(
    connection: Connection[TupleRow], pipeline: str
) -> PipelineVersion | None:
    """Return the version in force; None before the first start."""
    with connection.cursor(row_factory=class_row(PipelineVersion)) as cursor:
        return cursor.execute(_SQL["in_force"], {"pipeline": pipeline}).fetchone()


def find_contracts(dsn: str, pipeline: str) -> tuple[str, ...]:
    """Return the contracts that the version in force names, over a new connection.

    Returns:
        Those of the source and of lookup topics; none before the first start, and
        before the home's migrations.

    Raises:
        ConfigurationError, RetryableError: As ``connect`` does.
    """
    with (
        translated("reading the version in force"),
        connect(dsn, application_name="tallyweir version in force") as connection,
    ):
        if not fetch_row(connection, _SQL["are_there"])[0]:
            return ()
        in_force = read_in_force(connection, pipeline)
    if in_force is None:
        return ()
    named = in_force.definition["source"]["schema"]
    looked_up = (one.get("schema") for one in in_force.definition.get("enrich", ()))
    listed = named if isinstance(named, list) else [named]
    return tuple(one for one in (*listed, *looked_up) if one is not None)


def recall_held(connection: Connection[TupleRow], pipeline: str, epoch: int) -> None:
    """Let the version in force know no more than the version at an earlier claim did.

    The caller puts back what windows held then, and holds the pipeline's row.
    """
    versions = read_versions(connection, pipeline)
    former = [one for one in versions if one.epoch is None or one.epoch <= epoch]
    if not former or former[0] is versions[0]:
        return
    in_force, then = versions[0], former[0]
    held = in_force.knowledge.joined(then.knowledge)
    values = {"pipeline": pipeline, "version": in_force.version}
    connection.execute(_SQL["put_held"], {**values, "held": Jsonb(held.to_json())})


def was_superseded(
    connection: Connection[TupleRow], pipeline: str, definition_hash: str
) -> bool:
    """Tell whether an operator has put another version in the place of this one."""
    row = fetch_row(
        connection,
        _SQL["was_superseded"],
        {"pipeline": pipeline, "definition_hash": definition_hash},
    )
    return bool(row[0])


def add_version(
    connection: Connection[TupleRow],
    pipeline: str,
    version: DescribedVersion,
    held: HeldKnowledge,
    coming: Coming,
) -> int:
    """Put a version into force; the caller holds the pipeline's row.

    Returns:
        The version's number.
    """
    values = {
        "pipeline": pipeline,
        "definition": Jsonb(version.definition),
        "definition_hash": version.definition_hash,
        "layout": Jsonb(version.layout),
        "held": Jsonb(held.to_json()),
        "file_text": version.file_text,
        "from_sequence": coming.from_sequence,
        "epoch": coming.epoch,
        "is_announced": coming.is_announced,
        "reason": coming.reason,
        "rolls_back_to": coming.rolls_back_to,
        "watched_batches": coming.watched_batches,
    }
    row = fetch_row(connection, _SQL["add_version"], values)
    # Set it for people, for verify and for others that read what the pipeline is.
    connection.execute(_SQL["put_definition"], values)
    # The samples were taken by what the former version redacts.
    connection.execute(_SQL["forget_samples"], values)
    return int(row[0])


def tell_layout(
    connection: Connection[TupleRow],
    pipeline: str,
    number: int,
    version: DescribedVersion,
) -> None:
    """Note the tables of a version, if no driver has noted all of them yet."""
    connection.execute(
        _SQL["tell_layout"],
        {
            "pipeline": pipeline,
            "version": number,
            "layout": Jsonb(version.layout),
            "file_text": version.file_text,
        },
    )
