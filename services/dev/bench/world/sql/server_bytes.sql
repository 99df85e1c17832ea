-- How much a server has written to its log, and how much space a catalog takes.

-- name: log_bytes
SELECT (pg_current_wal_lsn() - '0/0')::bigint

-- name: catalog_bytes
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint
FROM tallyweir.pipeline
JOIN pg_class
    ON relkind = 'r'
   AND starts_with(relname, 'seen_id_run_p' || pipeline_number || '_')
JOIN pg_namespace
    ON pg_namespace.oid = relnamespace
   AND nspname = 'tallyweir'
WHERE pipeline = %(pipeline)s
