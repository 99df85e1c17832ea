-- The resources that the batches of a span of time used, added up.

-- name: totals
-- Only of measured batches, so that every share is of the same batches.
WITH spanned AS (
    SELECT batch.planned_at,
           measures,
           coalesce((measures #>> '{cpu_seconds,driver}')::float8, 0)
               + coalesce((measures #>> '{cpu_seconds,jvm}')::float8, 0)
               + coalesce((measures #>> '{cpu_seconds,tasks}')::float8, 0) AS cpu,
           counted.read,
           counted.committed
    FROM tallyweir.batch
    JOIN tallyweir.batch_usage USING (pipeline, sequence)
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(read), 0)::bigint AS read,
               coalesce(sum(committed), 0)::bigint AS committed
        FROM tallyweir.batch_partition AS covered
        WHERE covered.pipeline = batch.pipeline
          AND covered.sequence = batch.sequence
    ) AS counted
    WHERE batch.pipeline = %(pipeline)s
      AND batch.published_at >= now() - %(span)s
)
SELECT count(*) AS batches,
       coalesce(min(planned_at), now()) AS began_at,
       now() AS ended_at,
       coalesce(sum(read), 0)::bigint AS read,
       coalesce(sum(committed), 0)::bigint AS committed,
       coalesce(sum((measures ->> 'wal_bytes')::numeric), 0)::bigint AS wal_bytes,
       -- A line fitted through the batches: CPU seconds by records.
       regr_intercept(cpu, read) AS batch_cpu_s,
       regr_r2(cpu, read) AS batch_cpu_r2
FROM spanned

-- name: numbers
-- The numbers in one object of the measures, by name.
SELECT one.key AS name, sum(one.value::float8) AS value
FROM tallyweir.batch
JOIN tallyweir.batch_usage USING (pipeline, sequence)
CROSS JOIN LATERAL jsonb_each_text(measures -> %(object)s) AS one
WHERE batch.pipeline = %(pipeline)s
  AND batch.published_at >= now() - %(span)s
GROUP BY one.key

-- name: steps
SELECT step.key AS name,
       coalesce(sum((step.value ->> 'cpu_seconds')::float8), 0) AS cpu_seconds,
       coalesce(sum((step.value ->> 'rows_in')::numeric), 0)::bigint AS rows_in,
       coalesce(sum((step.value ->> 'rows_out')::numeric), 0)::bigint AS rows_out,
       coalesce(sum((step.value ->> 'bytes')::numeric), 0)::bigint AS bytes
FROM tallyweir.batch
JOIN tallyweir.batch_usage USING (pipeline, sequence)
CROSS JOIN LATERAL jsonb_each(measures -> 'steps') AS step
WHERE batch.pipeline = %(pipeline)s
  AND batch.published_at >= now() - %(span)s
GROUP BY step.key

-- name: outputs
SELECT output.output_table AS name, sum(output.rows)::bigint AS rows
FROM tallyweir.batch
JOIN tallyweir.batch_usage USING (pipeline, sequence)
JOIN tallyweir.batch_output AS output USING (pipeline, sequence)
WHERE batch.pipeline = %(pipeline)s
  AND batch.published_at >= now() - %(span)s
GROUP BY output.output_table
ORDER BY output.output_table

-- name: size
-- Includes indexes; NULL if the home has no such table. Reads pg_class, because a role
-- that may not use the table's schema may still learn its size there.
SELECT max(pg_total_relation_size(relation.oid)) AS bytes
FROM pg_class AS relation
JOIN pg_namespace AS place ON place.oid = relation.relnamespace
WHERE place.nspname = %(schema)s
  AND relation.relname = %(table)s
