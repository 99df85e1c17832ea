-- What the demo reads from the ledger while a driver works, and its own lookup table.

-- name: last_sequence
-- The lock waits for a publish transaction that a driver has left under way.
SELECT last_sequence
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s
FOR UPDATE

-- name: positions
SELECT topic, partition, next_offset
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s

-- name: tables_there
-- Returns those of the demo's tables that already exist.
SELECT name
FROM unnest(%(tables)s::text[]) AS wanted (name)
WHERE to_regclass('public.' || name) IS NOT NULL
ORDER BY name

-- name: ledger_there
SELECT to_regclass('tallyweir.pipeline') IS NOT NULL

-- name: pipeline_there
SELECT EXISTS (SELECT FROM tallyweir.pipeline WHERE pipeline = %(pipeline)s)

-- name: create_airlines
CREATE TABLE airlines (code text PRIMARY KEY, name text NOT NULL)

-- name: insert_airline
INSERT INTO airlines (code, name) VALUES (%s, %s)

-- name: repeated_id
SELECT event_id
FROM tallyweir.duplicate_event
WHERE pipeline = %(pipeline)s
ORDER BY kafka_partition, kafka_offset
LIMIT 1

-- name: visible_positions
SELECT topic, partition, next_offset
FROM tallyweir.visible_offset
WHERE pipeline = %(pipeline)s
