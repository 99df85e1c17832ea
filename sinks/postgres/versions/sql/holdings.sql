-- What a home holds of a pipeline.

-- name: pipeline
SELECT pipeline_number, watermark, bucket_seconds,
       EXISTS (
           SELECT
           FROM tallyweir.batch_partition AS part
           WHERE part.pipeline = pipeline.pipeline
             AND part.read > part.dead
       ) AS has_events
FROM tallyweir.pipeline AS pipeline
WHERE pipeline = %(pipeline)s;

-- name: any_row
SELECT EXISTS (SELECT FROM {target});

-- name: kept_keys
SELECT (
    SELECT count(*) FROM tallyweir.keyed_state
    WHERE pipeline = %(pipeline)s AND output_table = %(table)s
) + (
    SELECT count(*) FROM tallyweir.keyed_timer
    WHERE pipeline = %(pipeline)s AND output_table = %(table)s
);

-- name: open_rows
SELECT count(*), max({edge})
FROM {target}
WHERE NOT final;

-- name: open_windows
SELECT count(*) FILTER (WHERE {waits}), max({edge})
FROM {state};
