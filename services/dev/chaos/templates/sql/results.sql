-- Everything that a pipeline has made of its input, except for what depends on where
-- its batches ended: sequence numbers, instants of commits, and which copy of a repeat
-- came first.

-- name: result_tables
SELECT DISTINCT output_table
FROM tallyweir.batch_output
WHERE pipeline = %(pipeline)s
  AND kind <> 'outbox'
ORDER BY output_table

-- name: result_columns
SELECT attname::text
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
  AND NOT attisdropped
  AND attname NOT LIKE 'tallyweir\_%%'
  AND attname NOT IN ('kafka_topic', 'kafka_partition', 'kafka_offset')
ORDER BY attnum

-- name: result_rows
SELECT {columns} FROM {table}

-- name: dead_letter
SELECT kafka_partition, kafka_offset, reason, detail, event_id, key, payload
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s

-- name: duplicate_event
SELECT event_id
FROM tallyweir.duplicate_event
WHERE pipeline = %(pipeline)s

-- name: late_event
SELECT output_table, event_id, event_time
FROM tallyweir.late_event
WHERE pipeline = %(pipeline)s

-- name: expired_event
SELECT event_id, event_time
FROM tallyweir.expired_event
WHERE pipeline = %(pipeline)s

-- name: filtered_event
SELECT event_id
FROM tallyweir.filtered_event
WHERE pipeline = %(pipeline)s

-- name: replaced_row
SELECT output_table, event_id
FROM tallyweir.replaced_row
WHERE pipeline = %(pipeline)s

-- name: outbox
SELECT topic, event_id, key, value
FROM tallyweir.outbox
WHERE pipeline = %(pipeline)s

-- name: keyed_state
-- The entry of a list's element contains the batch that added it, so it is left out.
SELECT
    output_table,
    key,
    name,
    CASE WHEN entry ~ '^[0-9a-f]{16}[.][0-9a-f]{8}$' THEN 'element' ELSE entry END,
    value,
    schema_version,
    expires_at
FROM tallyweir.keyed_state
WHERE pipeline = %(pipeline)s

-- name: keyed_timer
SELECT output_table, key, name, shard, clock, fires_at
FROM tallyweir.keyed_timer
WHERE pipeline = %(pipeline)s

-- name: partition_progress
SELECT partition, next_offset
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s

-- name: watermark
SELECT watermark
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s

-- name: progress
SELECT coalesce(sum(next_offset), 0)::bigint
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s

-- name: due_timers
SELECT count(*)
FROM tallyweir.keyed_timer AS timer
JOIN tallyweir.pipeline USING (pipeline)
WHERE pipeline = %(pipeline)s
  AND clock = 'event'
  AND fires_at <= watermark

-- name: batches
SELECT count(*)
FROM tallyweir.batch
WHERE pipeline = %(pipeline)s
