-- Which pipelines a home knows, and which names it does not accept again.

-- name: register_pipeline
INSERT INTO tallyweir.pipeline (
    pipeline, definition, definition_hash, shards, bucket_seconds
)
VALUES (
    %(pipeline)s, %(definition)s::jsonb, %(definition_hash)s,
    %(shards)s, %(bucket_seconds)s
)
-- DO UPDATE would wait for a driver that publishes, but the claim comes first.
ON CONFLICT DO NOTHING

-- name: hold_registered
-- The pipeline cannot be discarded until the end of the transaction. This lock neither
-- waits for a driver that publishes nor makes it wait.
SELECT pipeline_number, bucket_seconds
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s
FOR KEY SHARE

-- name: discarded
SELECT front, batches, committed, reason, discarded_by, discarded_at
FROM tallyweir.discarded_pipeline
WHERE pipeline = %(pipeline)s
ORDER BY discarded_at DESC
LIMIT 1
