-- Branches of batches: what the home decided, and what each database holds.

-- name: branches_used
SELECT DISTINCT branch
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s;

-- name: decided_branches
SELECT decided.sequence, decided.branch, decided.gid, decided.committed_at,
       batch.published_at AS decided_at
FROM tallyweir.batch_branch AS decided
JOIN tallyweir.batch AS batch USING (pipeline, sequence)
WHERE decided.pipeline = %(pipeline)s
  AND {only}
ORDER BY decided.sequence, decided.branch;

-- name: decided_among
SELECT gid, sequence, branch
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s
  AND gid = ANY (%(gids)s);

-- name: has_markers
SELECT to_regclass('tallyweir_participant.marker') IS NOT NULL AS present;

-- name: markers
SELECT sequence, branch, gid, rows, digests
FROM tallyweir_participant.marker
WHERE installation = %(installation)s
  AND pipeline_number = %(pipeline_number)s
ORDER BY sequence, branch;

-- name: marked_among
SELECT gid
FROM tallyweir_participant.marker
WHERE gid = ANY (%(gids)s);

-- name: prepared
-- pg_prepared_xacts shows the whole server, so filter by database.
SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::double precision AS age_s
FROM pg_prepared_xacts
WHERE database = current_database()
  AND starts_with(gid, %(prefix)s)
ORDER BY prepared;
