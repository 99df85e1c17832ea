-- How far a pipeline may be scaled.

-- name: set_bounds
INSERT INTO tallyweir.scaling_bounds (
    pipeline, executors_min, executors_max, batch_offsets_min, batch_offsets_max,
    set_by
)
VALUES (
    %(pipeline)s, %(executors_min)s, %(executors_max)s, %(batch_offsets_min)s,
    %(batch_offsets_max)s, tallyweir.actor()
)
ON CONFLICT (pipeline) DO UPDATE
SET executors_min = excluded.executors_min,
    executors_max = excluded.executors_max,
    batch_offsets_min = excluded.batch_offsets_min,
    batch_offsets_max = excluded.batch_offsets_max,
    set_by = excluded.set_by,
    set_at = now();

-- name: delete_bounds
DELETE FROM tallyweir.scaling_bounds
WHERE pipeline = %(pipeline)s;
