-- Keyed state and timers: what tasks read, and what the publish transaction changes.

-- name: read_staged_events
SELECT {columns}
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
  AND tallyweir_shard = ANY(%(shards)s)
ORDER BY tallyweir_key COLLATE "C", tallyweir_event_time,
    kafka_topic COLLATE "C", kafka_partition, kafka_offset

-- name: read_values
SELECT key, name, value::text, schema_version
FROM tallyweir.keyed_state
WHERE pipeline = %(pipeline)s
  AND output_table = %(output_table)s
  AND key = ANY(%(keys)s)
  AND entry = ''
  AND name = ANY(%(names)s)
  AND (expires_at IS NULL OR expires_at > %(watermark)s)

-- name: read_entry
SELECT entry, value::text, schema_version
FROM tallyweir.keyed_state
WHERE pipeline = %(pipeline)s
  AND output_table = %(output_table)s
  AND key = %(key)s
  AND name = %(name)s
  AND entry = %(entry)s
  AND (expires_at IS NULL OR expires_at > %(watermark)s)

-- name: read_entries
SELECT entry, value::text, schema_version
FROM tallyweir.keyed_state
WHERE pipeline = %(pipeline)s
  AND output_table = %(output_table)s
  AND key = %(key)s
  AND name = %(name)s
  AND (expires_at IS NULL OR expires_at > %(watermark)s)
ORDER BY entry

-- name: read_due_timers
SELECT key, name, clock, fires_at
FROM tallyweir.keyed_timer
WHERE pipeline = %(pipeline)s
  AND output_table = %(output_table)s
  AND shard = ANY(%(shards)s)
  AND (
      (clock = 'event' AND fires_at <= %(watermark)s)
      OR (clock = 'processing' AND fires_at <= %(now)s)
  )
ORDER BY key, fires_at, name

-- name: has_due_timers
SELECT
    EXISTS (
        SELECT FROM tallyweir.keyed_timer
        WHERE pipeline = %(pipeline)s AND clock = 'event' AND fires_at <= %(watermark)s
    )
    OR EXISTS (
        SELECT FROM tallyweir.keyed_timer
        WHERE pipeline = %(pipeline)s AND clock = 'processing' AND fires_at <= %(now)s
    )

-- name: drop_expired
-- No task reads expired state, so rows beyond the limit can wait for the next batch.
DELETE FROM tallyweir.keyed_state
WHERE ctid = ANY(ARRAY(
    SELECT ctid
    FROM tallyweir.keyed_state
    WHERE pipeline = %(pipeline)s
      AND expires_at <= %(watermark_after)s
    LIMIT 50000
))

-- name: clear_names
DELETE FROM tallyweir.keyed_state AS kept
USING {staging} AS change
WHERE change.xmin = ANY(%(transactions)s::xid[])
  AND change.change = 'clear'
  AND kept.pipeline = %(pipeline)s
  AND kept.output_table = change.output_table
  AND kept.key = change.key
  AND kept.name = change.name

-- name: delete_entries
DELETE FROM tallyweir.keyed_state AS kept
USING {staging} AS change
WHERE change.xmin = ANY(%(transactions)s::xid[])
  AND change.change = 'delete'
  AND kept.pipeline = %(pipeline)s
  AND kept.output_table = change.output_table
  AND kept.key = change.key
  AND kept.name = change.name
  AND kept.entry = change.entry

-- name: put_entries
INSERT INTO tallyweir.keyed_state (
    pipeline, output_table, key, name, entry, value, schema_version, expires_at,
    sequence
)
SELECT %(pipeline)s, output_table, key, name, entry, value::json, schema_version,
       expires_at, %(sequence)s
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
  AND change = 'put'
ON CONFLICT (pipeline, output_table, key, name, entry) DO UPDATE
SET value = EXCLUDED.value,
    schema_version = EXCLUDED.schema_version,
    expires_at = EXCLUDED.expires_at,
    sequence = EXCLUDED.sequence

-- name: drop_timers
DELETE FROM tallyweir.keyed_timer AS timer
USING {staging} AS change
WHERE change.xmin = ANY(%(transactions)s::xid[])
  AND change.fires_at IS NULL
  AND timer.pipeline = %(pipeline)s
  AND timer.output_table = change.output_table
  AND timer.key = change.key
  AND timer.name = change.name

-- name: put_timers
INSERT INTO tallyweir.keyed_timer (
    pipeline, output_table, key, name, shard, clock, fires_at, sequence
)
SELECT %(pipeline)s, output_table, key, name, shard, clock, fires_at, %(sequence)s
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
  AND fires_at IS NOT NULL
ON CONFLICT (pipeline, output_table, key, name) DO UPDATE
SET shard = EXCLUDED.shard,
    clock = EXCLUDED.clock,
    fires_at = EXCLUDED.fires_at,
    sequence = EXCLUDED.sequence
