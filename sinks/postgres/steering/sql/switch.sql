-- Two pipelines change places: tables, what the ledger calls them, and their shadows.

-- name: definition
SELECT pipeline_number, definition
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: insert_shadow
INSERT INTO tallyweir.shadow_table (pipeline, front_table, shadow_table)
VALUES (%(pipeline)s, %(front)s, %(shadow)s);

-- name: delete_shadow
DELETE FROM tallyweir.shadow_table
WHERE pipeline = %(pipeline)s
  AND front_table = %(front)s;

-- name: tables_with_outputs
-- Tables of ours whose rows name an output.
SELECT relname AS name, attname AS column
FROM pg_class AS class
JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid
WHERE relnamespace = 'tallyweir'::regnamespace
  AND relkind = 'r'
  AND attname = ANY (%(columns)s)
  AND NOT attisdropped
ORDER BY 1, 2;

-- name: table_exists
SELECT to_regclass(%(table)s) IS NOT NULL AS exists;

-- name: grants
SELECT acl.grantee::regrole::text AS grantee, acl.privilege_type AS privilege
FROM pg_class
CROSS JOIN aclexplode(relacl) AS acl
WHERE oid = to_regclass(%(table)s)
  AND acl.grantee NOT IN (0, relowner);

-- name: grant
GRANT {privilege} ON {table} TO {grantee};

-- name: reaches
-- How far a pipeline has read. One whose position went back has its rows still, and
-- what it was made to skip counts as read.
WITH spans AS (
    SELECT topic, partition, max(until_offset) AS until_offset
    FROM tallyweir.batch_partition AS span
    JOIN tallyweir.standing_from AS standing USING (pipeline)
    WHERE pipeline = %(pipeline)s
      AND span.sequence >= standing.sequence
    GROUP BY topic, partition
)
SELECT topic, partition, topic_id, greatest(next_offset, until_offset) AS reach
FROM tallyweir.partition_progress
LEFT JOIN spans USING (topic, partition)
WHERE pipeline = %(pipeline)s;

-- name: rename_rows
UPDATE tallyweir.{table}
SET {column} = %(to)s
WHERE pipeline = %(pipeline)s
  AND {column} = %(from)s;

-- name: rename_table
ALTER TABLE {table} RENAME TO {name};
