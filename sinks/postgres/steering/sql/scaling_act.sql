-- The bounds between which a pipeline may be scaled.

-- name: set_bounds
-- A bound that is not given keeps its current value, not one that was read earlier.
INSERT INTO tallyweir.scaling_bounds AS former (
    pipeline, executors_min, executors_max, batch_offsets_min, batch_offsets_max,
    set_by
)
VALUES (
    %(pipeline)s, %(executors_min)s, %(executors_max)s, %(batch_offsets_min)s,
    %(batch_offsets_max)s, tallyweir.actor()
)
ON CONFLICT (pipeline) DO UPDATE
SET executors_min = coalesce(excluded.executors_min, former.executors_min),
    executors_max = coalesce(excluded.executors_max, former.executors_max),
    batch_offsets_min = coalesce(excluded.batch_offsets_min, former.batch_offsets_min),
    batch_offsets_max = coalesce(excluded.batch_offsets_max, former.batch_offsets_max),
    set_by = excluded.set_by,
    set_at = now();

-- name: delete_bounds
DELETE FROM tallyweir.scaling_bounds
WHERE pipeline = %(pipeline)s;
