-- Two pipelines change places: their tables, their names in the ledger, their shadows.

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
-- Tallyweir's own tables whose rows name an output.
SELECT relname AS name, attname AS column
FROM pg_class AS class
JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid
WHERE relnamespace = 'tallyweir'::regnamespace
  AND relkind = 'r'
  AND attname = ANY (%(columns)s)
  AND NOT attisdropped
ORDER BY 1, 2;

-- name: grants
-- Grants to everyone but the owner, on the table and on those of its columns that the
-- other table has too. Grantee 0 is PUBLIC, a name that no role can have.
WITH granted AS (
    SELECT relowner, grantee, privilege_type, is_grantable, NULL::name AS attname
    FROM pg_class
    CROSS JOIN aclexplode(relacl)
    WHERE oid = to_regclass(%(table)s)
    UNION ALL
    SELECT relowner, grantee, privilege_type, is_grantable, attname
    FROM pg_class
    JOIN pg_attribute AS ours ON attrelid = pg_class.oid
    CROSS JOIN aclexplode(attacl)
    WHERE pg_class.oid = to_regclass(%(table)s)
      AND EXISTS (
          SELECT
          FROM pg_attribute AS theirs
          WHERE theirs.attrelid = to_regclass(%(same)s)
            AND theirs.attname = ours.attname
      )
)
SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS grantee,
       privilege_type AS privilege,
       attname AS column,
       CASE WHEN is_grantable THEN 'WITH GRANT OPTION' ELSE '' END AS option
FROM granted
WHERE grantee <> relowner;

-- name: grant
GRANT {privilege} {columns} ON {table} TO {grantee} {option};

-- name: shared_sequences
-- Sequences that a column of the table owns and from which a column of the other table
-- draws too, as the copied default of a serial column does.
SELECT nspname AS schema, relname AS sequence, attname AS column
FROM pg_depend AS owned
JOIN pg_class ON pg_class.oid = owned.objid AND relkind = 'S'
JOIN pg_namespace ON pg_namespace.oid = relnamespace
JOIN pg_depend AS drawn
    ON drawn.refclassid = 'pg_class'::regclass
   AND drawn.refobjid = owned.objid
   AND drawn.classid = 'pg_attrdef'::regclass
JOIN pg_attrdef ON pg_attrdef.oid = drawn.objid
JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
WHERE owned.classid = 'pg_class'::regclass
  AND owned.refclassid = 'pg_class'::regclass
  AND owned.refobjid = to_regclass(%(table)s)
  AND owned.deptype = 'a'
  AND adrelid = to_regclass(%(same)s);

-- name: own_sequence
ALTER SEQUENCE {sequence} OWNED BY {column};

-- name: reaches
-- How far a pipeline has read. If its position went back, it still has its rows; what
-- it was made to skip counts as read.
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
