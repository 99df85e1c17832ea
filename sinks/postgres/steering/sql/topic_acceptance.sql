-- Renames the positions of a topic that was deleted. A topic that was created again
-- under its name begins with positions of its own.

-- name: positions
SELECT topic, partition, topic_id, next_offset
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s
  AND strpos(topic, ':') = 0
ORDER BY topic, partition;

-- name: hold_relay
-- No relay can start until the act ends.
SELECT pg_try_advisory_xact_lock(%(lock)s) AS is_held;

-- name: partly_sent
-- The ledger's digests cover waiting messages with their positions.
SELECT EXISTS (
           SELECT
           FROM tallyweir.relay_cursor AS cursor
           JOIN tallyweir.dead_letter AS letter USING (pipeline, sequence)
           WHERE cursor.pipeline = %(pipeline)s
             AND cursor.stream = 'dead_letter'
             AND (letter.kafka_topic, letter.kafka_partition, letter.kafka_offset)
                 > (cursor.kafka_topic, cursor.kafka_partition, cursor.kafka_offset)
       ) OR EXISTS (
           SELECT
           FROM tallyweir.outbox AS message
           WHERE message.pipeline = %(pipeline)s
       ) AS is_left;

-- name: pass_cursor
-- Under its new name, a sent letter of this batch could sort after the cursor again.
UPDATE tallyweir.relay_cursor
SET sequence = sequence + 1,
    kafka_topic = '',
    kafka_partition = -1,
    kafka_offset = -1
WHERE pipeline = %(pipeline)s
  AND stream = 'dead_letter'
  AND kafka_topic <> '';

-- name: rename
UPDATE {table}
SET {topic} = %(former)s
WHERE pipeline = %(pipeline)s
  AND {topic} = %(topic)s;

-- name: rename_rows
UPDATE {table}
SET kafka_topic = %(former)s
WHERE kafka_topic = %(topic)s;

-- name: begin
INSERT INTO tallyweir.partition_progress (
    pipeline, topic, partition, topic_id, next_offset
)
VALUES (
    %(pipeline)s, %(topic)s, %(partition)s, %(topic_id)s, %(next_offset)s
);
