-- What the server knows of a table; %(table)s is its quoted name.

-- name: is_there
SELECT EXISTS (
    SELECT
    FROM pg_class
    WHERE oid = to_regclass(%(table)s)
      -- Only tables and views can be read, not a type or an index of that name.
      AND relkind IN ('r', 'p', 'v', 'm', 'f')
)

-- name: columns_of
SELECT attname::text, format_type(atttypid, NULL)
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
  AND NOT attisdropped
ORDER BY attnum
