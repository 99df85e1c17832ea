"""Moves a pipeline's positions: forward past records, or back to read them again.

What a batch has committed stays. A committed record that is read again is a duplicate,
because its ID is known. So only records that were put aside get another chance, under
the current definition. The ledger keeps both readings, and ``verify`` compares each row
with the reading that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import (
    LOCK_TIMEOUT_MS,
    Act,
    ActRequest,
    acting,
)
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import (
    BrokerPosition,
    check_topic_identity,
    topic_ids,
)

_SQL = load_statements("tallyweir.sinks.postgres.steering", "offset_reset.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPosition:
    """The effects of moving one partition's position.

    Attributes:
        stood_at: The next offset to read before the move.
        target: The next offset to read after the move.
        batches: How many batches read the records that are to be read again.
        cut: How many of them reach beyond these records; their counts are whole.
        read: Records that these batches have read.
        committed: How many of those became results: they will be duplicates.
        put_aside: Records in the range that became none, by the table that lists them.
        rows: Rows of the range, by append output of the home.
    """

    topic: str
    partition: int
    stood_at: int
    target: int
    batches: int = 0
    cut: int = 0
    read: int = 0
    committed: int = 0
    put_aside: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """Offsets that are never read; 0 if it goes back."""
        return max(self.target - self.stood_at, 0)

    @property
    def read_again(self) -> int:
        """Offsets that are read again; 0 if it goes forward."""
        return max(self.stood_at - self.target, 0)


def reset_offsets(  # noqa: PLR0913 - an act and what it needs
    connection: Connection[TupleRow],
    pipeline: str,
    targets: Mapping[TopicPartition, int],
    broker: Mapping[TopicPartition, BrokerPosition],
    *,
    reason: str,
    dry_run: bool = False,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> tuple[MovedPosition, ...]:
    """Let a pipeline go on from other offsets, in one commit.

    A driver at work is fenced, drops its current batch whole, and goes on from there.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        targets: The next offset to read, of the partitions that are to move.
        broker: What the broker holds of the pipeline's topics.
        reason: Why, for people who ask later; kept permanently.
        dry_run: Only tell what the move would mean.
        lock_timeout_ms: How long to wait for a publish that is under way.

    Returns:
        The partitions that move, in order.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``,
            ``TOPIC_RECREATED``, ``POSITION_UNKNOWN``, ``OFFSET_NOT_IN_KAFKA``,
            ``NOTHING_TO_RESET``, ``RESET_WOULD_REPEAT``, ``FOREIGN_CODE`` or
            ``TABLE_LOST``.
        RetryableError: ``BATCH_IN_DOUBT``; or a publish held the pipeline's row for
            too long.

    Crash:
        Before the COMMIT nothing has changed and no driver is fenced; after it the
        pipeline goes on from the targets, and a repeated call finds nothing to do.
    """
    request = ActRequest(
        pipeline=pipeline,
        kind="offsets reset",
        reason=reason,
        dry_run=dry_run,
        lock_timeout_ms=lock_timeout_ms,
    )
    with acting(connection, request) as act:
        check_nothing_in_doubt(connection, pipeline)
        audited = read_pipeline(connection, pipeline)
        hold_tables(connection, audited, needs_all=True)
        moves = tuple(_moves(connection, audited, targets, broker))
        for move in moves:
            _apply(connection, audited, act, move)
        act.detail["moves"] = [asdict(move) for move in moves]
    return moves


def check_nothing_in_doubt(connection: Connection[TupleRow], pipeline: str) -> None:
    """Refuse an act while a batch is not committed in every database.

    Raises:
        RetryableError: ``BATCH_IN_DOUBT``.
    """
    pending = fetch_one(connection, _SQL["in_doubt"], pipeline=pipeline)["branches"]
    if pending:
        raise RetryableError(
            "BATCH_IN_DOUBT",
            saw=f"{pending} branches of pipeline {pipeline} are decided but not yet "
            "confirmed as committed.",
            why="Their rows belong to batches before the act, but would appear after "
            "it.",
            fix="Wait for the driver or the resolver to finish them, then try again; "
            "tallyweir indoubt list names them.",
        )


def _moves(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    targets: Mapping[TopicPartition, int],
    broker: Mapping[TopicPartition, BrokerPosition],
) -> Iterator[MovedPosition]:
    rows = {
        TopicPartition(row["topic"], row["partition"]): row
        for row in fetch(connection, _SQL["positions"], pipeline=pipeline.name)
    }
    check_topic_identity(
        {place.topic: row["topic_id"] for place, row in rows.items()}, topic_ids(broker)
    )
    moved = False
    for place, target in sorted(targets.items()):
        if place not in rows or place not in broker:
            raise ConfigurationError(
                "POSITION_UNKNOWN",
                saw=f"Pipeline {pipeline.name} has no position in {place}.",
                why="Only a partition that it reads, and that Kafka has, can be moved.",
                fix=f"tallyweir offsets show {pipeline.name} lists them.",
            )
        _check_in_kafka(place, target, broker[place])
        stood_at = rows[place]["next_offset"]
        if target != stood_at:
            moved = True
            yield _move(connection, pipeline, place, stood_at, target)
    if not moved:
        raise ConfigurationError(
            "NOTHING_TO_RESET",
            saw=f"Pipeline {pipeline.name} is already at these offsets.",
            why="No position would move.",
            fix="Nothing to do; to move it, name other offsets.",
        )


def _check_in_kafka(
    place: TopicPartition, target: int, position: BrokerPosition
) -> None:
    if position.log_start_offset <= target <= position.log_end_offset:
        return
    raise ConfigurationError(
        "OFFSET_NOT_IN_KAFKA",
        saw=f"{place} cannot continue from offset {target}; Kafka has "
        f"{position.log_start_offset} to {position.log_end_offset}.",
        why="Kafka has deleted earlier records, and later ones do not exist yet.",
        fix="Choose an offset in that range.",
    )


def _move(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    place: TopicPartition,
    stood_at: int,
    target: int,
) -> MovedPosition:
    move = MovedPosition(
        topic=place.topic, partition=place.partition, stood_at=stood_at, target=target
    )
    if target > stood_at:
        return move
    values = {
        "pipeline": pipeline.name,
        "topic": place.topic,
        "partition": place.partition,
        "from_offset": target,
        "until_offset": stood_at,
    }
    _check_ids_known(connection, pipeline, place, values)
    return replace(
        move,
        **fetch_one(connection, _SQL["settled"], **values),
        put_aside={
            row["kind"]: row["records"]
            for row in fetch(connection, _SQL["put_aside"], **values)
        },
        rows={
            output.table: fetch_one(
                connection,
                _SQL["count_rows"].format(table=output.identifier),
                **values,
            )["rows"]
            for output in pipeline.appends
            if output.databases == (HOME,)
        },
    )


def _check_ids_known(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    place: TopicPartition,
    values: Mapping[str, object],
) -> None:
    """Refuse to read records again that would not be found to be duplicates."""
    if pipeline.guarantee is Guarantee.AT_LEAST_ONCE:
        saw = "The pipeline writes at_least_once, and remembers no IDs."
    elif pipeline.horizon_s is None:
        saw = "The pipeline does not deduplicate, so it remembers no IDs."
    else:
        found = fetch(connection, _SQL["unremembered"], **values)
        if not found:
            return
        saw = f"The catalog has no IDs of batch {found[0]['sequence']}, which has "
        saw += f"committed records of {place} in that range."
    raise ConfigurationError(
        "RESET_WOULD_REPEAT",
        saw=saw,
        why="Events that are already in the tables would be written again.",
        fix="Go back only as far as IDs are remembered; or restore a snapshot, which "
        "also takes back the results; or read the topic again under another "
        "pipeline name.",
    )


def _apply(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    act: Act,
    move: MovedPosition,
) -> None:
    values = {
        "pipeline": pipeline.name,
        "epoch": act.epoch,
        "topic": move.topic,
        "partition": move.partition,
        "stood_at": move.stood_at,
        "target": move.target,
        "after_sequence": act.last_sequence,
    }
    advanced = connection.execute(_SQL["move_position"], values)
    assert advanced.rowcount == 1, "the position moved under the pipeline's lock"
    connection.execute(_SQL["note_reset"], values)
