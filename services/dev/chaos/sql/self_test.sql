-- Five ways to damage a finished run; each is rolled back after the check.

-- name: some_rows
SELECT kafka_partition, kafka_offset, event_id
FROM {table}
ORDER BY kafka_partition, kafka_offset
OFFSET %(skip)s
LIMIT %(count)s

-- name: count_rows
SELECT count(*) FROM {table}

-- name: remove_row
DELETE FROM {table}
WHERE kafka_partition = %(partition)s
  AND kafka_offset = %(offset)s

-- name: double_row
INSERT INTO {table} (
    event_id, site, amount, happened_at, note, kafka_topic, kafka_partition,
    kafka_offset
)
SELECT event_id, site, amount, happened_at, note, kafka_topic, kafka_partition,
       kafka_offset
FROM {table}
WHERE kafka_partition = %(partition)s
  AND kafka_offset = %(offset)s

-- name: swap_payloads
UPDATE {table} AS one
SET site = other.site,
    amount = other.amount,
    happened_at = other.happened_at,
    note = other.note
FROM {table} AS other
WHERE one.event_id = ANY(%(event_ids)s)
  AND other.event_id = ANY(%(event_ids)s)
  AND one.event_id <> other.event_id

-- name: other_batch
-- Returns the last offset of a batch that does not hold the row.
SELECT until_offset - 1
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND partition = %(partition)s
  AND until_offset > from_offset
  AND NOT (from_offset <= %(offset)s AND until_offset > %(offset)s)
ORDER BY sequence
LIMIT 1

-- name: move_row
UPDATE {table}
SET kafka_offset = %(target)s
WHERE kafka_partition = %(partition)s
  AND kafka_offset = %(offset)s

-- name: advance_offset
UPDATE tallyweir.partition_progress
SET next_offset = next_offset + 1
WHERE pipeline = %(pipeline)s
  AND partition = %(partition)s
