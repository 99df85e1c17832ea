-- The tables of pipelines that work in the shadow of another.

-- name: has_shadow_tables
SELECT to_regclass('tallyweir.shadow_table') IS NOT NULL

-- name: shadow_tables
SELECT front_table, shadow_table
FROM tallyweir.shadow_table
WHERE pipeline = %(pipeline)s
ORDER BY front_table
