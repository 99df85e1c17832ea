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

-- name: column_types
-- Reads the types with their modifiers, by which a column rounds.
SELECT attname::text, format_type(atttypid, atttypmod)
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
  AND NOT attisdropped
ORDER BY attnum

-- name: keys_over
-- Finds keys by which one row may refuse another: each column of the key is among the
-- given ones, or is computed from the row. A key with another column, such as a number
-- of the row's own, admits the row. So does a unique key that has all of the columns
-- that tell rows apart, if there are such columns.
SELECT indexrelid::regclass::text
FROM pg_index
CROSS JOIN LATERAL (
    SELECT
        array_agg(attname::text) AS names,
        bool_or(attname <> ALL(%(columns)s::text[]) AND attgenerated = '') AS has_own
    FROM pg_attribute
    WHERE attrelid = indrelid
      AND attnum = ANY(indkey[0:indnkeyatts - 1])
) AS key
WHERE indrelid = to_regclass(%(table)s)
  AND (indisunique OR indisexclusion)
  AND has_own IS NOT TRUE
  AND (indisexclusion OR (%(apart)s::text[] <@ names) IS NOT TRUE)
ORDER BY 1

-- name: keys_between
-- Finds foreign keys between the tables, where several transactions write at least one
-- of the two tables.
SELECT conrelid::regclass::text, confrelid::regclass::text, conname::text
FROM pg_constraint
WHERE contype = 'f'
  AND conrelid IN (SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS name)
  AND confrelid IN (SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS name)
  AND EXISTS (
      SELECT
      FROM unnest(%(split)s::text[]) AS name
      WHERE to_regclass(name) IN (conrelid, confrelid)
  )
ORDER BY 1, 2, 3
