-- The health of a version that is watched.

-- name: health
WITH newest AS (
    SELECT pipeline, version, watched_batches, from_sequence
    FROM tallyweir.pipeline_version
    WHERE pipeline = %(pipeline)s
    ORDER BY version DESC
    LIMIT 1
)
SELECT newest.version,
       newest.version - 1 AS former,
       newest.watched_batches,
       own.batches,
       own.read,
       own.dead,
       former.read AS former_read,
       former.dead AS former_dead
FROM newest
CROSS JOIN LATERAL (
    SELECT count(DISTINCT sequence) AS batches,
           coalesce(sum(read), 0)::bigint AS read,
           coalesce(sum(dead), 0)::bigint AS dead
    FROM tallyweir.batch_partition
    WHERE pipeline = newest.pipeline
      AND sequence > newest.from_sequence
      AND sequence <= newest.from_sequence + newest.watched_batches
) AS own
CROSS JOIN LATERAL (
    SELECT coalesce(sum(read), 0)::bigint AS read,
           coalesce(sum(dead), 0)::bigint AS dead
    FROM tallyweir.batch_partition
    WHERE pipeline = newest.pipeline
      AND sequence <= newest.from_sequence
      AND sequence > newest.from_sequence - newest.watched_batches
) AS former
WHERE newest.watched_batches > 0
  AND newest.version > 1;
