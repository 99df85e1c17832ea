"""Which pipelines a home knows, and which names it does not accept again.

A discarded pipeline worked in the shadow of another, so its file names the other's
tables. If its name were registered again, a driver would read the topic from its start
into these tables. So the name stays blocked until an operator forks under it.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.ledger", "registration.sql")


def register_pipeline(
    connection: Connection[TupleRow], values: Mapping[str, object]
) -> tuple[int, int]:
    """Register a pipeline that is not known, and keep it from being discarded.

    The pipeline cannot be discarded until the caller's transaction ends. So a later
    discard finds everything that this transaction makes for it, and leaves none behind.

    Returns:
        The pipeline's number, and the length of its buckets in seconds.

    Raises:
        ConfigurationError: ``PIPELINE_DISCARDED``.
    """
    registered = connection.execute(_SQL["register_pipeline"], values)
    # A separate statement sees a discard that was committed while the first statement
    # waited for it.
    row = connection.execute(_SQL["hold_registered"], values).fetchone()
    if registered.rowcount or row is None:
        check_not_discarded(connection, str(values["pipeline"]))
    assert row is not None
    number, bucket_seconds = row
    return number, bucket_seconds


def check_not_discarded(connection: Connection[TupleRow], pipeline: str) -> None:
    """Refuse a name if a pipeline of this name was discarded.

    Raises:
        ConfigurationError: ``PIPELINE_DISCARDED``.
    """
    row = connection.execute(_SQL["discarded"], {"pipeline": pipeline}).fetchone()
    if row is None:
        return
    front, batches, committed, reason, who, when = row
    raise ConfigurationError(
        "PIPELINE_DISCARDED",
        saw=f"Pipeline {pipeline} was discarded at "
        f"{when.isoformat(sep=' ', timespec='seconds')} by {who}, with its {batches} "
        f"batches of {committed} committed events"
        + (f", in the shadow of {front}" if front else "")
        + f": {reason}.",
        why="Its tables and state are gone, and its file names the tables that "
        "readers use: under that name it would read its topic from the start "
        "into them.",
        fix="Leave it discarded; or give its file another name and its own tables; "
        f"or fork it again: tallyweir fork {front or 'PIPELINE'} {pipeline} "
        "--reason TEXT.",
    )
