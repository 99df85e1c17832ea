-- What the relay reads and writes, all of it in the one session that holds its lock.

-- name: list_pipelines
SELECT pipeline
FROM tallyweir.pipeline
ORDER BY pipeline

-- name: read_cursor
SELECT sequence, kafka_topic, kafka_partition, kafka_offset
FROM tallyweir.relay_cursor
WHERE pipeline = %(pipeline)s
  AND stream = %(stream)s

-- name: read_dead_letters
-- Publish transactions of a pipeline follow one another, each with the next sequence,
-- so nothing can appear later at or before a place that was once read.
-- Kafka has no topic of a batch run: its letters are with those of the pipeline's first.
SELECT dead.sequence, dead.kafka_topic, dead.kafka_partition, dead.kafka_offset,
       CASE WHEN starts_with(dead.kafka_topic, 'batch:')
           THEN coalesce(
               pipeline.definition #>> '{source,topic,0}',
               pipeline.definition #>> '{source,topic}'
           )
           WHEN starts_with(dead.kafka_topic, 'former:')
           THEN split_part(dead.kafka_topic, ':', 3)
           ELSE dead.kafka_topic
       END AS source_topic,
       (
           SELECT progress.topic_id
           FROM tallyweir.partition_progress AS progress
           JOIN tallyweir.partition_progress AS former
               ON former.pipeline = progress.pipeline
              AND starts_with(former.topic, 'former:')
              AND split_part(former.topic, ':', 3) = progress.topic
           WHERE progress.pipeline = dead.pipeline
             AND progress.topic = dead.kafka_topic
             AND progress.partition = dead.kafka_partition
           LIMIT 1
       ) AS renewed_id,
       dead.kafka_timestamp, dead.reason, dead.detail, dead.key, dead.payload
FROM tallyweir.dead_letter AS dead
JOIN tallyweir.pipeline AS pipeline USING (pipeline)
JOIN tallyweir.visible_through AS through USING (pipeline)
WHERE dead.pipeline = %(pipeline)s
  AND dead.sequence <= through.sequence
  AND (dead.sequence, dead.kafka_topic, dead.kafka_partition, dead.kafka_offset)
      > (%(sequence)s::bigint, %(kafka_topic)s::text, %(kafka_partition)s::integer,
         %(kafka_offset)s::bigint)
ORDER BY dead.sequence, dead.kafka_topic, dead.kafka_partition, dead.kafka_offset
LIMIT %(messages_max)s

-- name: count_dead_letters
-- All that is not sent yet, also what no reader of other databases may see so far.
SELECT count(*)
FROM tallyweir.dead_letter AS dead
WHERE dead.pipeline = %(pipeline)s
  AND (dead.sequence, dead.kafka_topic, dead.kafka_partition, dead.kafka_offset)
      > (%(sequence)s::bigint, %(kafka_topic)s::text, %(kafka_partition)s::integer,
         %(kafka_offset)s::bigint)

-- name: read_outbox
-- What is sent is deleted, so what is there is still to be sent; the cursor's batch
-- only says where to begin looking.
SELECT waiting.sequence, waiting.kafka_topic, waiting.kafka_partition,
       waiting.kafka_offset, waiting.topic,
       CASE WHEN starts_with(waiting.kafka_topic, 'batch:')
           THEN coalesce(
               pipeline.definition #>> '{source,topic,0}',
               pipeline.definition #>> '{source,topic}'
           )
           WHEN starts_with(waiting.kafka_topic, 'former:')
           THEN split_part(waiting.kafka_topic, ':', 3)
           ELSE waiting.kafka_topic
       END AS source_topic,
       (
           SELECT progress.topic_id
           FROM tallyweir.partition_progress AS progress
           JOIN tallyweir.partition_progress AS former
               ON former.pipeline = progress.pipeline
              AND starts_with(former.topic, 'former:')
              AND split_part(former.topic, ':', 3) = progress.topic
           WHERE progress.pipeline = waiting.pipeline
             AND progress.topic = waiting.kafka_topic
             AND progress.partition = waiting.kafka_partition
           LIMIT 1
       ) AS renewed_id,
       waiting.event_id, waiting.key, waiting.value
FROM tallyweir.outbox AS waiting
JOIN tallyweir.pipeline AS pipeline USING (pipeline)
JOIN tallyweir.visible_through AS through USING (pipeline)
WHERE waiting.pipeline = %(pipeline)s
  AND waiting.sequence BETWEEN %(sequence)s AND through.sequence
ORDER BY waiting.sequence, waiting.kafka_topic, waiting.kafka_partition,
         waiting.kafka_offset, waiting.topic
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
-- Kafka knows nothing of the positions of batch runs.
WHERE strpos(topic, ':') = 0
ORDER BY pipeline, topic, partition
