-- name: read_definition
SELECT obj_description(to_regclass(%(view)s), 'pg_class')

-- name: create
CREATE OR REPLACE VIEW {view} AS
SELECT
    kept.window_end AS "timestamp",
    metric.name AS metric_name,
    metric.value,
    jsonb_build_object({dimensions}) AS dimensions,
    kept.window_start
FROM {table} AS kept
CROSS JOIN LATERAL (VALUES {metrics}) AS metric (name, value)

-- name: describe
COMMENT ON VIEW {view} IS {definition}
