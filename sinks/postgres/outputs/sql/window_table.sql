-- name: add_window_key
-- A group with NULL in its key is still one group.
ALTER TABLE {target} ADD UNIQUE NULLS NOT DISTINCT ({keys})

-- name: add_open_windows_index
-- Serves settle_windows, which looks for windows that the watermark has passed.
CREATE INDEX ON {target} (window_end) WHERE NOT final

-- name: has_window_key
SELECT 1
FROM pg_index
WHERE indrelid = to_regclass(%(table)s)
  AND indisunique
  AND indisvalid
  -- ON CONFLICT does not accept a deferrable constraint.
  AND indimmediate
  AND indpred IS NULL
  AND indexprs IS NULL
  AND (indnullsnotdistinct OR indnkeyatts = 1)
  AND (
      SELECT array_agg(attname::text ORDER BY attname::text)
      FROM pg_attribute
      WHERE attrelid = indrelid
        AND attnum = ANY(indkey)
  ) = %(keys)s

-- name: leave_room
-- Rows change with each batch. This leaves room for the next version of a row on its
-- own page, so no index needs a new entry, and nothing of that is written to the log.
ALTER TABLE {target} SET (fillfactor = 50)

-- name: create_state
-- Leaves room for each row, like leave_room.
CREATE TABLE IF NOT EXISTS {state} (
    {definitions},
    UNIQUE NULLS NOT DISTINCT ({keys})
) WITH (fillfactor = 50)
