-- How big and how fresh the tables of a pipeline's outputs are.

-- name: size
-- The planner's estimate of the rows, and the size of the files with their indexes.
SELECT CASE WHEN reltuples >= 0 THEN reltuples::bigint END AS rows_estimated,
       pg_total_relation_size(pg_class.oid) AS bytes
FROM pg_class
WHERE oid = to_regclass(%(table)s);

-- name: newest_batches
-- What each output took from the newest batches, and the last batch that gave it rows.
WITH added AS (
    SELECT output_table,
           kind,
           sum(events)::bigint AS events,
           sum(rows)::bigint AS rows,
           sum(late)::bigint AS late,
           sum(revised)::bigint AS revised,
           max(sequence) FILTER (WHERE rows > 0) AS last_sequence
    FROM tallyweir.batch_output
    WHERE pipeline = %(pipeline)s
      AND sequence > %(after)s
    GROUP BY output_table, kind
)
SELECT added.output_table,
       added.kind,
       added.events,
       added.rows,
       added.late,
       added.revised,
       added.last_sequence,
       last.published_at,
       last.watermark_after,
       extract(epoch FROM now() - last.watermark_after)::float8 AS behind_s
FROM added
LEFT JOIN tallyweir.batch AS last
    ON last.pipeline = %(pipeline)s AND last.sequence = added.last_sequence;
