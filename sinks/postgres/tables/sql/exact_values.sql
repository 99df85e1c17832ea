-- Writes values unchanged to columns of other types, or refuses them.

-- name: types
-- A domain counts as the type that it is based on, with the modifier of that type.
WITH RECURSIVE made_of (attnum, attname, declared, typid, typmod) AS (
    SELECT attnum, attname, format_type(atttypid, atttypmod), atttypid, atttypmod
    FROM pg_attribute
    WHERE attrelid = to_regclass(%(table)s)
      AND attnum > 0
      AND NOT attisdropped
    UNION ALL
    SELECT attnum, attname, declared, typbasetype, typtypmod
    FROM made_of
    JOIN pg_type ON pg_type.oid = typid
    WHERE typtype = 'd'
)
SELECT attname::text, declared, format_type(typid, typmod)
FROM made_of
JOIN pg_type ON pg_type.oid = typid
WHERE typtype <> 'd'
ORDER BY attnum

-- name: guarded
CASE WHEN ({source})::{type}::{produced} IS NOT DISTINCT FROM ({source})
     THEN {source}
     ELSE tallyweir_state.would_change(
         {name}, {declared}, ({source})::text
     )::{produced}
END

-- name: guarded_padded
-- Readers see the padding, although a cast to text drops it.
CASE WHEN octet_length(({source})::{type}) IS NOT DISTINCT FROM octet_length({source})
      AND ({source})::{type}::text IS NOT DISTINCT FROM rtrim({source}, ' ')
     THEN {source}
     ELSE tallyweir_state.would_change({name}, {declared}, {source})::{produced}
END
