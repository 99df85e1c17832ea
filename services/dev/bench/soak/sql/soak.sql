-- Reads the progress of a soak run, and counts and drops rows to free disk space.

-- name: progress
-- Offsets begin at zero, so they count messages.
SELECT coalesce(sum(next_offset), 0)::bigint
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s

-- name: totals
SELECT coalesce(sum(read), 0)::bigint,
       coalesce(sum(committed), 0)::bigint,
       coalesce(sum(duplicate), 0)::bigint
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s

-- name: catalog
-- One statement, so that the IDs are those of the batches that it counts.
SELECT
    (SELECT coalesce(sum(ids), 0)::bigint
     FROM tallyweir.seen_id_run
     WHERE seen_id_run.pipeline = home.pipeline
       AND NOT is_hidden),
    (SELECT coalesce(sum(committed), 0)::bigint
     FROM tallyweir.batch_partition
     WHERE batch_partition.pipeline = home.pipeline),
    -- The watermark at the start of the newest batch decides which buckets are dropped.
    (SELECT extract(epoch FROM watermark_before)::double precision
     FROM tallyweir.batch
     WHERE batch.pipeline = home.pipeline
     ORDER BY sequence DESC
     LIMIT 1),
    bucket_seconds
FROM tallyweir.pipeline AS home
WHERE pipeline = %(pipeline)s

-- name: rename_part
ALTER TABLE {table} RENAME TO {part}

-- name: begin_part
CREATE TABLE {table} (LIKE {part} INCLUDING ALL)

-- name: last_sequence
SELECT last_sequence FROM tallyweir.pipeline WHERE pipeline = %(pipeline)s

-- name: count_part
SELECT count(*), coalesce(sum(kafka_offset), 0) FROM {part}

-- name: claimed_part
SELECT
    (SELECT coalesce(sum(committed), 0)::bigint
     FROM tallyweir.batch_partition
     WHERE pipeline = %(pipeline)s
       AND sequence > %(after_sequence)s
       AND sequence <= %(through_sequence)s),
    (SELECT coalesce(sum(checksum), 0)
     FROM tallyweir.batch
     WHERE pipeline = %(pipeline)s
       AND sequence > %(after_sequence)s
       AND sequence <= %(through_sequence)s)

-- name: drop_part
DROP TABLE {part}
