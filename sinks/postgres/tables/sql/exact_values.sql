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
SELECT
    attname::text,
    declared,
    format_type(typid, typmod),
    CASE
        WHEN pg_type.typtype = 'e' THEN 'enum'
        WHEN element.typtype = 'e' THEN 'enum[]'
        ELSE format_type(typid, NULL)
    END,
    element.oid IS NOT NULL
FROM made_of
JOIN pg_type ON pg_type.oid = typid
LEFT JOIN pg_type AS element
    ON element.oid = pg_type.typelem AND pg_type.typcategory = 'A'
WHERE pg_type.typtype <> 'd'
ORDER BY attnum

-- name: cast
-- The type's own input function reads a text; a domain checks its constraints.
({source})::{type}

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

-- name: read_from_text
CASE WHEN {holds} THEN ({source})::{type}
     ELSE tallyweir_state.would_change({name}, {declared}, {source})::{type}
END

-- name: holds_date
-- A date that is written otherwise has another meaning in other sessions, or, as
-- 'today', on other days.
({source})::{type}::text IS NOT DISTINCT FROM {source}

-- name: holds_time
-- Postgres rounds more digits than the type has, and takes 23:59:60 for midnight.
({source} ~ '^[0-9][0-9]:[0-9][0-9](:[0-5][0-9]([.][0-9]+)?)?$') IS NOT FALSE
AND ({source} !~ '[.][0-9]{{6}}[0-9]*[1-9]') IS NOT FALSE
AND ({source})::{type}::time IS NOT DISTINCT FROM ({source})::time

-- name: holds_json
-- Of a key that comes twice, jsonb keeps the last value only.
({source} IS JSON WITH UNIQUE KEYS) IS NOT FALSE

-- name: holds_json_15
-- The same without IS JSON, which Postgres 15 lacks: jsonb keeps as many values.
(SELECT count(*) FROM jsonb_path_query(({source})::jsonb, 'strict $.**')) = (
    WITH RECURSIVE part (given) AS (
        SELECT ({source})::json WHERE {source} IS NOT NULL
        UNION ALL
        SELECT inner_part.value
        FROM part
        CROSS JOIN LATERAL (
            SELECT value
            FROM json_each(
                CASE json_typeof(given) WHEN 'object' THEN given ELSE '{{}}' END
            )
            UNION ALL
            SELECT value
            FROM json_array_elements(
                CASE json_typeof(given) WHEN 'array' THEN given ELSE '[]' END
            )
        ) AS inner_part
    )
    SELECT count(*) FROM part
)

-- name: array_from_json
(
    SELECT
        CASE WHEN to_jsonb(made.value) IS NOT DISTINCT FROM given.value THEN made.value
             ELSE tallyweir_state.would_change(
                 {name}, {declared}, given.value::text
             )::{type}
        END
    FROM (SELECT {source} AS value) AS given
    CROSS JOIN LATERAL jsonb_to_record(
        jsonb_build_object('value', given.value)
    ) AS made (value {type})
)
