-- What the home database knows about branches in other databases.

-- name: newest_claim
-- Without a claim, as after a restore, epoch 0 stands for a claim that no driver has.
SELECT installation_id,
       pipeline_number,
       coalesce(epoch, 0),
       coalesce(nonce, '00000000')
FROM tallyweir.pipeline
LEFT JOIN tallyweir.epoch_claim USING (pipeline)
CROSS JOIN tallyweir.installation
WHERE pipeline = %(pipeline)s
ORDER BY epoch DESC NULLS LAST
LIMIT 1

-- name: decided_among
SELECT gid
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s
  AND gid = ANY(%(gids)s)

-- name: unresolved
SELECT gid
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s
  AND committed_at IS NULL

-- name: note_committed
UPDATE tallyweir.batch_branch
SET committed_at = clock_timestamp()
WHERE pipeline = %(pipeline)s
  AND gid = ANY(%(gids)s)
  AND committed_at IS NULL
