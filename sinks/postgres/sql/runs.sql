-- name: fetch_runs
SELECT sequence, bucket, fingerprints, payload_hashes
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND sequence > %(after_sequence)s
  AND sequence <= %(through_sequence)s
  AND bucket >= %(live_from_bucket)s
ORDER BY sequence, bucket

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

-- name: drop_bucket
SELECT tallyweir.drop_bucket(%(pipeline_number)s, %(bucket)s)
