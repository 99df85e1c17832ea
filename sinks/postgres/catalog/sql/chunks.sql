-- Merging the runs of a bucket into chunks. Chunks are hidden when they are written;
-- one transaction then shows them and deletes the runs. No transaction is long, because
-- a transaction that uses the catalog keeps buckets from being dropped.

-- name: pipelines
-- Pipelines with a watermark, and the last batch whose runs are merged.
SELECT pipeline, pipeline_number,
       floor(extract(epoch FROM watermark))::bigint - bucket_seconds AS closed_through,
       last_sequence - %(margin)s,
       (definition -> 'deduplicate' ->> 'false_positives')::double precision
FROM tallyweir.pipeline
WHERE watermark IS NOT NULL
ORDER BY pipeline

-- name: keep_others_out
SELECT pg_try_advisory_lock(7255947, %(pipeline_number)s)

-- name: due_bucket
-- The oldest bucket that has enough runs compared with its chunks, since a merge writes
-- its chunks again. To a starting driver, each run costs as much as some further IDs.
WITH held AS (
    SELECT bucket,
           coalesce(
               sum(ids + %(ids_per_run)s) FILTER (WHERE chunk = -1), 0
           ) AS run_cost,
           coalesce(sum(ids) FILTER (WHERE chunk >= 0), 0) AS chunk_ids
    FROM tallyweir.seen_id_run
    WHERE pipeline = %(pipeline)s
      AND sequence <= %(through_sequence)s
      AND NOT is_hidden
    GROUP BY bucket
)
SELECT bucket
FROM held
WHERE CASE
    WHEN bucket > %(closed_through)s
        THEN run_cost > greatest(%(open_ids_kept)s, chunk_ids / %(open_growth)s)
    WHEN chunk_ids = 0
        THEN run_cost > 0
    ELSE run_cost > least(
        greatest(%(late_ids_kept)s, chunk_ids / %(growth)s), %(late_ids_max)s
    )
END
ORDER BY bucket
LIMIT 1

-- name: sweep
-- Rows that an unfinished merge has left.
DELETE FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND bucket = %(bucket)s
  AND is_hidden

-- name: list_rows
SELECT sequence, chunk, first, ids
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND bucket = %(bucket)s
  AND sequence <= %(through_sequence)s
  AND NOT is_hidden
ORDER BY sequence, chunk, first

-- name: read_rows
SELECT coalesce(oldest_sequence, sequence), fingerprints, payload_hashes, sequences
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND bucket = %(bucket)s
  AND NOT is_hidden
  AND (sequence, chunk, first)
      BETWEEN (%(sequence)s, %(chunk)s, %(first)s)
          AND (%(last_sequence)s, %(last_chunk)s, %(last_first)s)

-- name: write_chunk
INSERT INTO tallyweir.seen_id_run (
    pipeline, bucket, sequence, ids, first, last, fingerprints, payload_hashes,
    chunk, chunks, oldest_sequence, sequences, filter, is_hidden
)
VALUES (
    %(pipeline)s, %(bucket)s, %(sequence)s, %(ids)s, %(first)s, %(last)s,
    %(fingerprints)s, %(payload_hashes)s,
    %(chunk)s, %(chunks)s, %(oldest_sequence)s, %(sequences)s, %(filter)s, true
)

-- name: settings
SELECT set_config('lock_timeout', '10s', false)

-- name: await_forgetting
-- A batch run that forgets all IDs takes this lock too (publish.sql): it would not see
-- chunks that are shown meanwhile.
SELECT pg_advisory_xact_lock(7255946, %(pipeline_number)s)

-- name: take_runs_away
WITH merged AS (
    DELETE FROM tallyweir.seen_id_run
    WHERE pipeline = %(pipeline)s
      AND bucket = %(bucket)s
      AND sequence <= %(through_sequence)s
      AND NOT is_hidden
    RETURNING ids
)
SELECT count(*), coalesce(sum(ids), 0)::bigint
FROM merged

-- name: show_chunks
UPDATE tallyweir.seen_id_run
SET is_hidden = false
WHERE pipeline = %(pipeline)s
  AND bucket = %(bucket)s
  AND sequence = %(sequence)s
  AND is_hidden
