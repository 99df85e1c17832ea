-- name: one_snapshot
-- Without this, a merge that ends between the next two statements would hide its IDs
-- from both.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: fetch_filters
-- Filters of the buckets whose chunks hold only IDs of these batches.
SELECT bucket, sequence, oldest_sequence, chunks, chunk, ids, filter
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND chunk >= 0
  AND NOT is_hidden
  AND oldest_sequence > %(after_sequence)s
  AND sequence <= %(through_sequence)s
  AND bucket >= %(live_from_bucket)s
ORDER BY bucket DESC, chunk

-- name: fetch_runs
-- Runs, and chunks that also hold IDs of other batches.
SELECT greatest(
           coalesce(oldest_sequence, sequence), %(after_sequence)s::bigint + 1
       ) AS from_sequence,
       bucket, oldest_sequence, fingerprints, payload_hashes, sequences
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND NOT is_hidden
  AND sequence > %(after_sequence)s
  AND coalesce(oldest_sequence, sequence) <= %(through_sequence)s
  AND bucket >= %(live_from_bucket)s
  AND (
      chunk = -1
      OR oldest_sequence <= %(after_sequence)s
      OR sequence > %(through_sequence)s
  )
ORDER BY from_sequence, bucket, chunk

-- name: find_in_slices
-- The server reads only the requested bytes of each value, and sends only slices that
-- may have the ID: a slice that has it, or one that does not begin before the ID and
-- end after it, so that the ID may be just outside. A chunk that was merged again has
-- no row any more. OFFSET 0 makes Postgres compute a value once, not at each use.
SELECT asked.number,
       CASE WHEN has.may THEN slice.fingerprints END,
       CASE WHEN has.may THEN
           substring(payload_hashes FROM asked.start * 8 + 1 FOR asked.length * 8)
       END
FROM (
    SELECT chunk, start, length, number,
           substring(
               %(fingerprints)s::bytea FROM number::integer * 16 - 15 FOR 16
           ) AS fingerprint
    FROM unnest(
            %(chunks)s::integer[], %(starts)s::integer[], %(lengths)s::integer[]
        ) WITH ORDINALITY AS slices (chunk, start, length, number)
    OFFSET 0
) AS asked
JOIN tallyweir.seen_id_run AS run
    ON run.pipeline = %(pipeline)s
   AND run.bucket = %(bucket)s
   AND run.sequence = %(sequence)s
   AND run.chunk = asked.chunk
CROSS JOIN LATERAL (
    SELECT substring(
        run.fingerprints FROM asked.start * 16 + 1 FOR asked.length * 16
    ) AS fingerprints
    OFFSET 0
) AS slice
CROSS JOIN LATERAL (
    SELECT position(asked.fingerprint IN slice.fingerprints) > 0
        OR asked.start > 0
           AND asked.fingerprint < substring(slice.fingerprints FOR 16)
        OR asked.start + asked.length < run.ids
           AND asked.fingerprint
               > substring(slice.fingerprints FROM asked.length * 16 - 15) AS may
    OFFSET 0
) AS has
WHERE NOT run.is_hidden

-- name: fetch_entries
-- All entries of a bucket between two fingerprints, of batches through one, however
-- often the bucket was merged since. In a restored database, these may be runs again.
SELECT coalesce(oldest_sequence, sequence), fingerprints, payload_hashes,
       CASE WHEN sequence > %(through_sequence)s THEN sequences END
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND bucket = %(bucket)s
  AND NOT is_hidden
  AND coalesce(oldest_sequence, sequence) <= %(through_sequence)s
  AND last >= %(first)s
  AND first <= %(last)s
ORDER BY first

-- name: create_bucket
SELECT tallyweir.create_bucket(%(pipeline_number)s, %(bucket)s)

-- name: bucket_tables
SELECT child.relname
FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
JOIN pg_class AS parent ON parent.oid = inhparent
JOIN pg_namespace AS home ON home.oid = parent.relnamespace
WHERE home.nspname = 'tallyweir'
  AND parent.relname = %(pipeline_runs)s

-- name: lock_settings
-- The server has room for locks: the first number times the second.
SELECT current_setting('max_locks_per_transaction')::bigint,
       current_setting('max_connections')::bigint
           + current_setting('max_prepared_transactions')::bigint

-- name: drop_bucket
SELECT tallyweir.drop_bucket(%(pipeline_number)s, %(bucket)s)
