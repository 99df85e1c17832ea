-- The schemas of the registry that pipelines have met.

-- name: is_there
SELECT to_regclass('tallyweir.registered_schema') IS NOT NULL

-- name: all
SELECT schema_id, kind, schema, referred
FROM tallyweir.registered_schema
ORDER BY schema_id

-- name: keep
INSERT INTO tallyweir.registered_schema (schema_id, kind, schema, referred)
VALUES (%(schema_id)s, %(kind)s, %(schema)s, %(referred)s)
ON CONFLICT (schema_id) DO NOTHING

-- name: one
SELECT schema_id, kind, schema, referred
FROM tallyweir.registered_schema
WHERE schema_id = %(schema_id)s
