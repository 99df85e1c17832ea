-- Writing values to columns of other types, as they are or not at all.

-- name: types
-- A domain is what it is made of, whose modifier holds if it has one itself.
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
-- Its padding is what readers see, though it does not count when it is cast to text.
CASE WHEN octet_length(({source})::{type}) IS NOT DISTINCT FROM octet_length({source})
      AND ({source})::{type}::text IS NOT DISTINCT FROM rtrim({source}, ' ')
     THEN {source}
     ELSE tallyweir_state.would_change({name}, {declared}, {source})::{produced}
END
