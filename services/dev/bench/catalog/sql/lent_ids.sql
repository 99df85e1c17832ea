-- Lends the seen IDs of one pipeline to another, as if the borrower had seen them
-- before its first batch: they get batch 0, which no pipeline has.

-- name: pipeline_number
SELECT pipeline_number FROM tallyweir.pipeline WHERE pipeline = %(pipeline)s

-- name: last_sequence
SELECT last_sequence FROM tallyweir.pipeline WHERE pipeline = %(pipeline)s

-- name: buckets
SELECT bucket, sum(ids)::bigint,
       count(*) FILTER (WHERE chunk >= 0), count(*) FILTER (WHERE chunk = -1)
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND NOT is_hidden
GROUP BY bucket
ORDER BY bucket

-- name: create_bucket
SELECT tallyweir.create_bucket(%(pipeline_number)s, %(bucket)s)

-- name: lend
INSERT INTO tallyweir.seen_id_run (
    pipeline, bucket, sequence, ids, first, last, fingerprints, payload_hashes,
    chunk, chunks, oldest_sequence, sequences, filter
)
SELECT
    %(borrower)s, bucket, 0, ids, first, last, fingerprints, payload_hashes,
    chunk, chunks,
    CASE WHEN chunk >= 0 THEN 0 END,
    -- The batch that added each ID, relative to the oldest batch: always the oldest.
    CASE WHEN chunk >= 0 THEN decode(repeat('00000000', ids), 'hex') END,
    filter
FROM tallyweir.seen_id_run
WHERE pipeline = %(lender)s
  AND bucket = %(bucket)s
  AND NOT is_hidden

-- name: lent
SELECT coalesce(sum(ids), 0)::bigint
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND sequence = 0

-- name: take_back
DELETE FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND sequence = 0
