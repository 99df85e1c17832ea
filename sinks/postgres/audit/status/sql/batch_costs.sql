-- What batches have cost, and what the server shows of possible causes of delay.

-- name: newest
-- Leaves out the ages of events; charts.sql adds them up in the database.
SELECT sequence,
       counted.read,
       counted.committed,
       counted.dead,
       written.measures - 'ages' AS measures
FROM tallyweir.batch_measures AS written
CROSS JOIN LATERAL (
    SELECT coalesce(sum(read), 0)::bigint AS read,
           coalesce(sum(committed), 0)::bigint AS committed,
           coalesce(sum(dead), 0)::bigint AS dead
    FROM tallyweir.batch_partition AS covered
    WHERE covered.pipeline = written.pipeline
      AND covered.sequence = written.sequence
) AS counted
WHERE pipeline = %(pipeline)s
  AND sequence > %(after)s
ORDER BY sequence;

-- name: unnamed
SELECT path, sum(records::bigint)::bigint AS records, min(published_at) AS since
FROM tallyweir.batch_measures AS written
JOIN tallyweir.batch USING (pipeline, sequence)
CROSS JOIN LATERAL jsonb_each_text(measures -> 'unnamed') AS counted (path, records)
WHERE written.pipeline = %(pipeline)s
  AND written.sequence > %(after)s
  AND written.sequence > (
      SELECT coalesce(max(from_sequence), 0)
      FROM tallyweir.pipeline_version
      WHERE pipeline = %(pipeline)s
  )
GROUP BY path
ORDER BY records DESC, path
LIMIT 20;

-- name: newest_claim
SELECT epoch
FROM tallyweir.epoch_claim
WHERE pipeline = %(pipeline)s
ORDER BY epoch DESC
LIMIT 1;

-- name: partitions
SELECT count(*) AS partitions
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s
  AND strpos(topic, ':') = 0;

-- name: since_commit
SELECT coalesce(
           extract(epoch FROM clock_timestamp() - max(published_at)), 0
       )::float8 AS seconds
FROM tallyweir.batch
WHERE pipeline = %(pipeline)s
  AND sequence = %(last)s;

-- name: in_doubt
SELECT coalesce(
           extract(epoch FROM clock_timestamp() - min(published_at)), 0
       )::float8 AS seconds
FROM tallyweir.batch_branch
JOIN tallyweir.batch USING (pipeline, sequence)
WHERE pipeline = %(pipeline)s
  AND committed_at IS NULL;

-- name: oldest_xmin
-- What keeps vacuum from removing dead rows, the oldest first. Postgres does not tell
-- the age of a replication slot, so the server's age stands as its upper bound.
SELECT seconds, holder
FROM (
    SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
           'process ' || pid || coalesce(' (' || nullif(application_name, '') || ')', '')
               AS holder
    FROM pg_stat_activity
    WHERE datname = current_database()
      AND backend_type = 'client backend'
      AND pid <> pg_backend_pid()
      AND xact_start IS NOT NULL
      AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    UNION ALL
    SELECT extract(epoch FROM clock_timestamp() - prepared)::float8,
           'prepared transaction ' || gid
    FROM pg_prepared_xacts
    WHERE database = current_database()
    UNION ALL
    SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8,
           'replication slot ' || slot_name
    FROM pg_replication_slots
    WHERE xmin IS NOT NULL
      AND NOT active
) AS held
ORDER BY seconds DESC
LIMIT 1;

-- name: dead_rows
SELECT coalesce(sum(n_dead_tup), 0)::bigint AS dead_rows,
       coalesce(sum(n_live_tup), 0)::bigint AS live_rows
FROM pg_stat_user_tables
WHERE relid = ANY(ARRAY(
    SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS wanted (name)
));

-- name: table_sizes
-- The number of rows is the catalog's estimate, as of the last vacuum or analyze.
SELECT wanted.name,
       pg_total_relation_size(found.oid) AS bytes,
       greatest(found.reltuples, 0)::bigint AS rows
FROM unnest(%(tables)s::text[]) AS wanted (name)
JOIN pg_class AS found ON found.oid = to_regclass(wanted.name);

-- name: catalog_bytes
SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint AS bytes
FROM pg_partition_tree(to_regclass(%(table)s));
