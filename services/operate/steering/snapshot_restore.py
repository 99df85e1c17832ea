"""Takes a pipeline back to a snapshot, after asking Kafka for its positions."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.kafka.topic_log import TopicLog
from tallyweir.sinks.postgres import audit, steering
from tallyweir.sinks.postgres.steering import Restored


def restore_snapshot(  # noqa: PLR0913 - an act and what it needs
    home: Connection[TupleRow],
    bootstrap: str,
    pipeline: str,
    name: str,
    *,
    reason: str,
    dry_run: bool,
) -> Restored:
    """Take a pipeline back to a snapshot, by ``steering.restore``.

    Raises:
        ConfigurationError: As ``restore``, or ``TOPIC_MISSING``.
        RetryableError: As ``restore``, or ``KAFKA_UNREACHABLE``.
    """
    topics = audit.read_source(home, pipeline).topics
    broker = TopicLog(bootstrap, *topics).read_positions()
    return steering.restore(
        home, pipeline, name, broker, reason=reason, dry_run=dry_run
    )


def restored_told(restored: Restored) -> tuple[str, ...]:
    """Report what was, or would be, taken back."""
    sent = (
        (restored.messages_sent, "messages of the outbox"),
        (restored.dead_letters_sent, "dead letters"),
    )
    whole = (
        f"taken back: {restored.batches:,} batches after batch "
        f"{restored.after_sequence}, which read {restored.records:,} records and "
        f"committed {restored.committed:,}"
    )
    lines = [whole]
    for table, rows in sorted(restored.rows.items()):
        lines.append(f"  {rows:,} rows of {table}")
    lines.append(f"  {restored.ids:,} seen IDs")
    for number, what in sent:
        if number:
            lines.append(
                f"  {number:,} {what} are in Kafka already and stay there; they are "
                "sent again under the same IDs"
            )
    lines += [
        f"  the snapshot {name}, which belongs to a later batch"
        for name in restored.dropped
    ]
    lines += [
        f"reads on: {place} from {offset:,}"
        for place, offset in restored.positions.items()
    ]
    return tuple(lines)
