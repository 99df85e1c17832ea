-- Statements in a database that holds branches.

-- name: list_prepared
SELECT gid
FROM pg_prepared_xacts
-- The view shows the whole server, but a session can finish only its own database's.
WHERE database = current_database()
  AND starts_with(gid, %(prefix)s)

-- name: commit_prepared
COMMIT PREPARED {gid}

-- name: roll_back_prepared
ROLLBACK PREPARED {gid}

-- name: prepare
PREPARE TRANSACTION {gid}

-- name: has_marker
SELECT 1
FROM tallyweir_participant.marker
WHERE gid = %(gid)s
-- The lock makes this a write, so its commit waits until the standbys have the marker.
-- They may not have had it when it became visible here.
FOR NO KEY UPDATE

-- name: newest_markers
SELECT DISTINCT ON (branch) gid
FROM tallyweir_participant.marker
WHERE installation = %(installation)s
  AND pipeline_number = %(pipeline_number)s
ORDER BY branch, sequence DESC

-- name: newest_marker
SELECT gid
FROM tallyweir_participant.marker
WHERE installation = %(installation)s
  AND pipeline_number = %(pipeline_number)s
  AND branch = %(branch)s
ORDER BY sequence DESC
LIMIT 1

-- name: insert_marker
INSERT INTO tallyweir_participant.marker (
    installation, pipeline_number, branch, sequence, gid, pipeline, rows,
    digests
)
VALUES (
    %(installation)s, %(pipeline_number)s, %(branch)s, %(sequence)s, %(gid)s,
    %(pipeline)s, %(rows)s, %(digests)s
)

-- name: waits_since
-- Since when the longest waiting window has waited.
SELECT min(tallyweir_waiting_since)
FROM {state}
