-- name: read_columns
SELECT
    attname::text,
    format_type(atttypid, atttypmod),
    NOT attnotnull OR atthasdef OR attidentity <> ''
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
  AND NOT attisdropped
ORDER BY attnum

-- name: add_window_key
-- A group may have NULL in its key and is still one group.
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
  -- ON CONFLICT takes no deferrable constraint.
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
-- A row that changes with each batch finds room for its next version on its own page,
-- so no index has to be told where it is, and nothing of that is written to the log.
ALTER TABLE {target} SET (fillfactor = 50)

-- name: create_state
-- With room beside each row, as leave_room says.
CREATE TABLE IF NOT EXISTS {state} (
    {definitions},
    UNIQUE NULLS NOT DISTINCT ({keys})
) WITH (fillfactor = 50)

-- name: add_sequence_index
-- Serves verify, which counts the rows of each batch.
CREATE INDEX ON {target} (tallyweir_sequence)

-- name: column_types
-- Without their modifiers, which COPY applies as INSERT does.
SELECT attname::text, format_type(atttypid, NULL)
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
  AND NOT attisdropped
ORDER BY attnum

-- name: keys_over
-- Keys that a row written again would break: all that they have is among some columns.
-- One that has another column, such as a number of the row's own, lets it in.
SELECT indexrelid::regclass::text
FROM pg_index
WHERE indrelid = to_regclass(%(table)s)
  AND (indisunique OR indisexclusion)
  AND NOT EXISTS (
      SELECT
      FROM pg_attribute
      WHERE attrelid = indrelid
        AND attnum = ANY(indkey[0:indnkeyatts - 1])
        AND attname <> ALL(%(columns)s::text[])
  )
ORDER BY 1
