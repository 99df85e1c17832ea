-- What the relay reads and writes, all in the one session that holds its lock.

-- name: list_pipelines
SELECT pipeline
FROM tallyweir.pipeline
ORDER BY pipeline

-- name: read_cursor
SELECT sequence, kafka_topic, kafka_partition, kafka_offset
FROM tallyweir.relay_cursor
WHERE pipeline = %(pipeline)s
  AND stream = %(stream)s

-- name: of_topic
-- Columns of a message: its source topic, and that topic's id if the topic was deleted
-- and made again. Kafka has no topic for a batch run: its messages count for the
-- pipeline's first topic.
CASE WHEN starts_with(message.kafka_topic, 'batch:')
    THEN coalesce(
        pipeline.definition #>> '{source,topic,0}',
        pipeline.definition #>> '{source,topic}'
    )
    WHEN starts_with(message.kafka_topic, 'former:')
    THEN split_part(message.kafka_topic, ':', 3)
    ELSE message.kafka_topic
END AS source_topic,
(
    SELECT progress.topic_id
    FROM tallyweir.partition_progress AS progress
    JOIN tallyweir.partition_progress AS former
        ON former.pipeline = progress.pipeline
       AND starts_with(former.topic, 'former:')
       AND split_part(former.topic, ':', 3) = progress.topic
    WHERE progress.pipeline = message.pipeline
      AND progress.topic = message.kafka_topic
      AND progress.partition = message.kafka_partition
    LIMIT 1
) AS renewed_id

-- name: read_dead_letters
-- Publish transactions of a pipeline follow one another, each with the next sequence,
-- so no message can appear later at or before a place that was read.
SELECT message.sequence, message.kafka_topic, message.kafka_partition,
       message.kafka_offset,
       {of_topic},
       message.kafka_timestamp, message.reason, message.detail, message.key,
       message.payload
FROM tallyweir.dead_letter AS message
JOIN tallyweir.pipeline AS pipeline USING (pipeline)
JOIN tallyweir.visible_through AS through USING (pipeline)
WHERE message.pipeline = %(pipeline)s
  AND message.sequence <= through.sequence
  AND (message.sequence, message.kafka_topic, message.kafka_partition,
       message.kafka_offset)
      > (%(sequence)s::bigint, %(kafka_topic)s::text, %(kafka_partition)s::integer,
         %(kafka_offset)s::bigint)
ORDER BY message.sequence, message.kafka_topic, message.kafka_partition,
         message.kafka_offset
LIMIT %(messages_max)s

-- name: count_dead_letters
-- All messages not sent yet, including those of batches not yet visible everywhere.
SELECT count(*)
FROM tallyweir.dead_letter AS dead
WHERE dead.pipeline = %(pipeline)s
  AND (dead.sequence, dead.kafka_topic, dead.kafka_partition, dead.kafka_offset)
      > (%(sequence)s::bigint, %(kafka_topic)s::text, %(kafka_partition)s::integer,
         %(kafka_offset)s::bigint)

-- name: read_outbox
-- Sent messages are deleted, so all that exist are still to be sent; the cursor's batch
-- only says where to start.
SELECT message.sequence, message.kafka_topic, message.kafka_partition,
       message.kafka_offset, message.topic,
       {of_topic},
       message.event_id, message.key, message.value
FROM tallyweir.outbox AS message
JOIN tallyweir.pipeline AS pipeline USING (pipeline)
JOIN tallyweir.visible_through AS through USING (pipeline)
WHERE message.pipeline = %(pipeline)s
  AND message.sequence BETWEEN %(sequence)s AND through.sequence
ORDER BY message.sequence, message.kafka_topic, message.kafka_partition,
         message.kafka_offset, message.topic
LIMIT %(messages_max)s

-- name: count_outbox
SELECT count(*)
FROM tallyweir.outbox
WHERE pipeline = %(pipeline)s
  AND sequence >= %(sequence)s

-- name: delete_outbox
DELETE FROM tallyweir.outbox
WHERE pipeline = %(pipeline)s
  AND sequence BETWEEN %(from_sequence)s AND %(sequence)s
  AND (sequence, kafka_topic, kafka_partition, kafka_offset, topic)
      <= (%(sequence)s::bigint, %(kafka_topic)s::text, %(kafka_partition)s::integer,
          %(kafka_offset)s::bigint, %(target)s::text)

-- name: move_cursor
INSERT INTO tallyweir.relay_cursor AS stored (
    pipeline, stream, sequence, kafka_topic, kafka_partition, kafka_offset, messages
)
VALUES (
    %(pipeline)s, %(stream)s, %(sequence)s, %(kafka_topic)s, %(kafka_partition)s,
    %(kafka_offset)s, %(messages)s
)
ON CONFLICT (pipeline, stream) DO UPDATE
SET sequence = EXCLUDED.sequence,
    kafka_topic = EXCLUDED.kafka_topic,
    kafka_partition = EXCLUDED.kafka_partition,
    kafka_offset = EXCLUDED.kafka_offset,
    messages = stored.messages + EXCLUDED.messages,
    moved_at = now()
WHERE (stored.sequence, stored.kafka_topic, stored.kafka_partition,
       stored.kafka_offset)
    = (%(from_sequence)s::bigint, %(from_topic)s::text, %(from_partition)s::integer,
       %(from_offset)s::bigint)

-- name: read_visible_offsets
SELECT pipeline, topic, partition, next_offset
FROM tallyweir.visible_offset
-- Kafka does not know the positions of batch runs.
WHERE strpos(topic, ':') = 0
ORDER BY pipeline, topic, partition
