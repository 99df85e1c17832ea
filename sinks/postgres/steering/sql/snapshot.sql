-- Snapshots of pipelines.

-- name: hold
-- Holds the lock until the session unlocks: meanwhile no bucket of seen IDs is dropped,
-- and no act is done that would miss the snapshot (act.sql).
SELECT pg_advisory_lock(7255949, pipeline_number)
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: release
SELECT pg_advisory_unlock(7255949, pipeline_number)
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: insert_snapshot
INSERT INTO tallyweir.snapshot (
    pipeline, name, reason, sequence, watermark, definition, epoch, move, ids_since,
    taken_by
)
SELECT pipeline, %(name)s, %(reason)s, last_sequence, watermark, definition,
       (
           SELECT coalesce(max(epoch), 0)
           FROM tallyweir.epoch_claim
           WHERE pipeline = %(pipeline)s
       ),
       (
           SELECT coalesce(max(move), 0)
           FROM (
               SELECT move
               FROM tallyweir.accepted_gap
               WHERE pipeline = %(pipeline)s
               UNION ALL
               SELECT move
               FROM tallyweir.offset_reset
               WHERE pipeline = %(pipeline)s
           ) AS moves
       ),
       floor(extract(epoch FROM watermark))::bigint - %(horizon_s)s::bigint,
       tallyweir.actor()
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s
ON CONFLICT DO NOTHING
RETURNING snapshot_number;

-- name: list_snapshots
SELECT snapshot_number, name, reason, sequence, watermark, definition, epoch, move,
       taken_by, taken_at,
       (
           SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
           FROM pg_class
           WHERE relnamespace = (
               SELECT oid
               FROM pg_namespace
               WHERE nspname = 'tallyweir_snapshot_' || snapshot_number
           )
             AND relkind = 'r'
       ) AS bytes
FROM tallyweir.snapshot
WHERE pipeline = %(pipeline)s
ORDER BY sequence, snapshot_number;

-- name: create_schema
CREATE SCHEMA {schema}

-- name: drop_schema
DROP SCHEMA IF EXISTS {schema} CASCADE

-- name: delete_snapshot
DELETE FROM tallyweir.snapshot
WHERE snapshot_number = %(snapshot_number)s;

-- name: is_held
-- Whether hold_tables has locked the table: any other may be someone else's by now.
SELECT EXISTS (
    SELECT
    FROM pg_locks
    WHERE pid = pg_backend_pid()
      AND relation = to_regclass(%(table)s)
      AND mode = 'ShareUpdateExclusiveLock'
) AS is_held;

-- name: of_pipeline
pipeline = {pipeline}

-- name: copy
CREATE TABLE {copy} AS
SELECT {columns}
FROM {source}
WHERE {condition}

-- name: unsettled
-- Rows that may still change. A final row whose window ended long before does not.
NOT final
OR window_end + {lateness}::interval > {watermark}::timestamptz

-- name: read_copy
COPY (SELECT {columns} FROM {copy}) TO STDOUT

-- name: write_copy
COPY {target} ({columns}) FROM STDIN
