-- Prepared branches, and what the home database says of them.

-- name: installation
SELECT installation_id
FROM tallyweir.installation

-- name: registered_pipelines
SELECT pipeline,
       pipeline_number,
       -- Epoch 0 means that there is no claim, as in the driver.
       coalesce(claim.epoch, 0) AS epoch,
       coalesce(claim.nonce, '00000000') AS nonce
FROM tallyweir.pipeline AS pipeline
LEFT JOIN LATERAL (
    SELECT epoch, nonce
    FROM tallyweir.epoch_claim AS claim
    WHERE claim.pipeline = pipeline.pipeline
    ORDER BY epoch DESC
    LIMIT 1
) AS claim ON true
ORDER BY pipeline

-- name: decisions_among
SELECT gid, sequence, published_at
FROM tallyweir.batch_branch
JOIN tallyweir.batch USING (pipeline, sequence)
WHERE gid = ANY(%(gids)s)

-- name: unnoted_decisions
SELECT gid,
       sequence,
       published_at,
       extract(epoch FROM clock_timestamp() - published_at)::double precision AS age_s
FROM tallyweir.batch_branch
JOIN tallyweir.batch USING (pipeline, sequence)
WHERE committed_at IS NULL
ORDER BY sequence, gid

-- name: prepared_branches
SELECT gid,
       prepared AS prepared_at,
       extract(epoch FROM clock_timestamp() - prepared)::double precision AS age_s,
       owner::text AS owner
FROM pg_prepared_xacts
-- The view shows the whole server, but a session can finish only its own database's.
WHERE database = current_database()
  AND starts_with(gid, %(prefix)s)
ORDER BY prepared, gid
