-- Gauges of pipelines, for charts.

-- name: under_way
-- Prepared branches on the home's server, in any database, and the batch that has been
-- in doubt longest.
SELECT prepared.branches AS prepared,
       prepared.oldest_s AS prepared_s,
       pipeline.last_sequence - through.sequence AS in_doubt,
       coalesce(
           (SELECT extract(epoch FROM clock_timestamp() - oldest.published_at)
            FROM tallyweir.batch AS oldest
            WHERE oldest.pipeline = pipeline.pipeline
              AND oldest.sequence = through.sequence + 1),
           0
       )::float8 AS in_doubt_s
FROM tallyweir.pipeline AS pipeline
JOIN tallyweir.visible_through AS through USING (pipeline)
CROSS JOIN LATERAL (
    SELECT count(*) AS branches,
           coalesce(max(extract(epoch FROM clock_timestamp() - xact.prepared)), 0)::float8
               AS oldest_s
    FROM tallyweir.installation
    JOIN pg_prepared_xacts AS xact
      ON starts_with(
          xact.gid,
          'tallyweir:' || installation_id || ':' || pipeline.pipeline_number || ':'
      )
) AS prepared
WHERE pipeline.pipeline = %(pipeline)s;

-- name: keep
INSERT INTO tallyweir.pipeline_gauge (
    pipeline, at, freshness_s, lag, catch_up_s, unread_s, headroom_s, prepared,
    prepared_s, in_doubt, in_doubt_s, state_bytes, catalog_ids, catalog_bytes
)
VALUES (
    %(pipeline)s,
    date_bin(make_interval(secs => %(every_s)s), clock_timestamp(), 'epoch'),
    %(freshness_s)s, %(lag)s, %(catch_up_s)s, %(unread_s)s, %(headroom_s)s,
    %(prepared)s, %(prepared_s)s, %(in_doubt)s, %(in_doubt_s)s, %(state_bytes)s,
    %(catalog_ids)s, %(catalog_bytes)s
)
ON CONFLICT (pipeline, at) DO NOTHING;

-- name: forget
DELETE FROM tallyweir.pipeline_gauge
WHERE pipeline = %(pipeline)s
  AND at < clock_timestamp() - make_interval(secs => %(kept_s)s);

-- name: newest
SELECT freshness_s, lag, catch_up_s, unread_s, headroom_s, prepared, prepared_s,
       in_doubt, in_doubt_s, state_bytes, catalog_ids, catalog_bytes, at
FROM tallyweir.pipeline_gauge
WHERE pipeline = %(pipeline)s
ORDER BY at DESC
LIMIT 1;

-- name: history
SELECT freshness_s, lag, catch_up_s, unread_s, headroom_s, prepared, prepared_s,
       in_doubt, in_doubt_s, state_bytes, catalog_ids, catalog_bytes, at
FROM tallyweir.pipeline_gauge
WHERE pipeline = %(pipeline)s
  AND at > now() - make_interval(secs => %(seconds)s)
ORDER BY at;
