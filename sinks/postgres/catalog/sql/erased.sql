-- A pipeline's tombstones, for its tasks.

-- name: erased_ids
SELECT coalesce(string_agg(fingerprint, ''::bytea ORDER BY fingerprint), '')
FROM tallyweir.erased_id
WHERE pipeline = %(pipeline)s

-- name: erased_positions
SELECT DISTINCT kafka_topic, kafka_partition, kafka_offset
FROM tallyweir.erased_row
WHERE pipeline = %(pipeline)s
