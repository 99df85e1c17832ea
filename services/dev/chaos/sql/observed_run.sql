-- Everything that a finished run left behind, for the checker.

-- name: result_rows
SELECT kafka_partition, kafka_offset, event_id, site, amount,
       (extract(epoch FROM happened_at) * 1000000)::bigint, note
FROM {table}

-- name: duplicates
SELECT kafka_partition, kafka_offset, event_id
FROM tallyweir.duplicate_event
WHERE pipeline = %(pipeline)s

-- name: dead_letters
SELECT kafka_partition, kafka_offset, reason
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s

-- name: other_places
-- Late and expired events, which this workload must not have.
SELECT kafka_partition, kafka_offset
FROM tallyweir.late_event
WHERE pipeline = %(pipeline)s
UNION ALL
SELECT kafka_partition, kafka_offset
FROM tallyweir.expired_event
WHERE pipeline = %(pipeline)s

-- name: batches
SELECT sequence, epoch, spark_batch_id, published_at
FROM tallyweir.batch
WHERE pipeline = %(pipeline)s
ORDER BY sequence

-- name: ranges
SELECT sequence, partition, from_offset, until_offset, read, committed, duplicate,
       dead, late + expired + filtered
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
ORDER BY sequence, partition

-- name: positions
SELECT partition, next_offset
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s

-- name: last_sequence
SELECT last_sequence
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s

-- name: claims
SELECT epoch
FROM tallyweir.epoch_claim
WHERE pipeline = %(pipeline)s
ORDER BY epoch

-- name: windows
SELECT window_start, site, events, total, least, most
FROM chaos_totals

-- name: decided_branches
SELECT sequence, branch, gid
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s

-- name: has_markers
SELECT to_regclass('tallyweir_participant.marker') IS NOT NULL

-- name: markers
SELECT sequence, gid, rows
FROM tallyweir_participant.marker
WHERE pipeline = %(pipeline)s

-- name: prepared
SELECT gid FROM pg_prepared_xacts
