-- Finds the parts of a table that would run another role's code with the rights of a
-- role that uses the table. The owner of Tallyweir's schema, and a role that already
-- has all the rights of this login, gain nothing by such code, so they are trusted.

-- name: path
SELECT pg_catalog.current_setting('search_path') AS path;

-- name: restore_path
SELECT set_config('search_path', %(path)s, true);

-- name: hold
-- Blocks all changes except those of rows until the transaction ends. Neither publish
-- transactions nor readers wait.
LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE;

-- name: keep
LOCK TABLE {table} IN ACCESS SHARE MODE;

-- name: present
SELECT name
FROM unnest(%(tables)s::text[]) AS asked (name)
WHERE to_regclass(name) IS NOT NULL
  AND (NOT %(skips_secret)s OR has_table_privilege(to_regclass(name), 'SELECT'));

-- name: kind
-- The name is resolved in the newest catalog, whatever the transaction sees.
SELECT relkind
FROM pg_class
WHERE oid = to_regclass(%(table)s);

-- name: foreign_code
WITH RECURSIVE trusted AS MATERIALIZED (
    SELECT oid
    FROM pg_roles
    WHERE (
            pg_has_role(oid, current_user, 'MEMBER')
            AND pg_has_role(oid, session_user, 'MEMBER')
        )
        OR oid IN (SELECT nspowner FROM pg_namespace WHERE nspname = %(schema)s)
),
part (name, oid) AS (
    SELECT to_regclass(asked.name)::text, to_regclass(asked.name)::oid
    FROM unnest(%(tables)s::text[]) AS asked (name)
    WHERE to_regclass(asked.name) IS NOT NULL
    UNION
    SELECT inhrelid::regclass::text, inhrelid
    FROM part
    JOIN pg_inherits ON inhparent = part.oid
),
relation AS (
    SELECT part.name, part.oid, class.relkind, class.relnamespace,
           class.relispartition, class.oid IS NULL AS is_new,
           class.relrowsecurity OR row_security_active(part.oid) AS is_filtered,
           coalesce(class.relowner IN (SELECT oid FROM trusted), false) AS is_trusted
    FROM part
    LEFT JOIN pg_class AS class ON class.oid = part.oid
),
expression AS (
    SELECT relation.name, format('constraint %%I', conname) AS what, conbin::text AS tree,
           false AS is_default
    FROM relation
    JOIN pg_constraint ON conrelid = relation.oid AND conbin IS NOT NULL
    WHERE NOT is_trusted
    UNION ALL
    SELECT relation.name, format('default or formula of %%I', attname), adbin::text,
           attgenerated = ''
    FROM relation
    JOIN pg_attrdef ON adrelid = relation.oid
    JOIN pg_attribute ON attrelid = relation.oid AND attnum = adnum
    WHERE NOT is_trusted
    UNION ALL
    SELECT relation.name, format('index %%s', indexrelid::regclass),
           concat(indexprs::text, indpred::text), false
    FROM relation
    JOIN pg_index ON indrelid = relation.oid
    WHERE NOT is_trusted
      AND (indexprs IS NOT NULL OR indpred IS NOT NULL)
    UNION ALL
    SELECT relation.name, format('statistics %%I', stxname), stxexprs::text, false
    FROM relation
    JOIN pg_statistic_ext ON stxrelid = relation.oid AND stxexprs IS NOT NULL
    WHERE NOT is_trusted
    UNION ALL
    SELECT relation.name, 'its partition key', partexprs::text, false
    FROM relation
    JOIN pg_partitioned_table ON partrelid = relation.oid AND partexprs IS NOT NULL
    WHERE NOT is_trusted
    UNION ALL
    SELECT relation.name, format('trigger %%I', tgname), tgqual::text, false
    FROM relation
    JOIN pg_trigger ON tgrelid = relation.oid AND tgqual IS NOT NULL
    WHERE is_trusted
      AND %(is_written)s
),
called AS (
    SELECT expression.name, what, is_default, found[1]::oid AS function
    FROM expression
    CROSS JOIN regexp_matches(tree, ':\w*func(?:id|oid) (\d+)', 'g') AS found
    UNION
    SELECT expression.name, what, is_default, oprcode::oid
    FROM expression
    CROSS JOIN regexp_matches(tree, ':opnos? (?:\(o )?([\d ]+)', 'g') AS found
    CROSS JOIN regexp_split_to_table(trim(found[1]), ' +') AS listed (number)
    JOIN pg_operator ON pg_operator.oid = listed.number::oid
),
typed AS (
    SELECT expression.name, what, found[1]::oid AS type
    FROM expression
    CROSS JOIN regexp_matches(tree, ':\w*type(?:id|Id)? (\d+)', 'g') AS found
    UNION
    SELECT relation.name, format('type of column %%I', attname), atttypid
    FROM relation
    JOIN pg_attribute ON attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
    WHERE NOT is_trusted
),
element AS (
    SELECT typed.name, what, coalesce(array_type.typelem, type) AS type
    FROM typed
    LEFT JOIN pg_type AS array_type
        ON array_type.oid = type
       AND array_type.typcategory = 'A'
       AND array_type.typelem <> 0
),
problem (name, what) AS (
    SELECT name,
           CASE
               WHEN is_new THEN 'is of this moment'
               WHEN relkind = 'v' THEN 'is a view'
               WHEN relkind = 'm' THEN 'is a materialized view'
               WHEN relkind = 'f' THEN 'is a foreign table, or has one'
               ELSE 'is no table'
           END
    FROM relation
    WHERE NOT is_trusted
      AND (is_new OR relkind NOT IN ('r', 'p'))
    UNION ALL
    SELECT name, 'has row-level security'
    FROM relation
    WHERE NOT is_trusted
      AND is_filtered
    UNION ALL
    SELECT name, 'is a part of another table'
    FROM relation
    WHERE NOT is_trusted
      AND relispartition
      AND NOT EXISTS (
          SELECT
          FROM pg_inherits
          WHERE inhrelid = relation.oid
            AND inhparent IN (SELECT oid FROM part)
      )
    UNION ALL
    SELECT name, format('has rule %%I', rulename)
    FROM relation
    JOIN pg_rewrite ON ev_class = relation.oid
    WHERE NOT is_trusted
      AND relkind IN ('r', 'p')
    UNION ALL
    SELECT relation.name, format('has trigger %%I', tgname)
    FROM relation
    JOIN pg_trigger ON tgrelid = relation.oid AND NOT tgisinternal
    JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE %(is_written)s
      AND (NOT is_trusted OR proowner NOT IN (SELECT oid FROM trusted))
    UNION ALL
    SELECT relation.name, format('has foreign key %%I', conname)
    FROM relation
    JOIN pg_constraint ON conrelid = relation.oid AND contype = 'f'
    WHERE %(is_written)s
      AND NOT is_trusted
    UNION ALL
    SELECT relation.name, format('is meant by foreign key %%I of %%s', conname, conrelid::regclass)
    FROM relation
    JOIN pg_constraint ON confrelid = relation.oid AND contype = 'f'
    JOIN pg_class AS other ON other.oid = conrelid
    WHERE %(is_written)s
      AND other.relowner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT called.name, format('has %%s, which calls %%s', what, function::regprocedure)
    FROM called
    JOIN pg_proc ON pg_proc.oid = function
    WHERE proowner NOT IN (SELECT oid FROM trusted)
       OR provolatile <> 'i'
      AND NOT (
          is_default
          AND pronamespace = 'pg_catalog'::regnamespace
          AND proname IN (
              'nextval', 'now', 'clock_timestamp', 'statement_timestamp', 'random',
              'transaction_timestamp', 'gen_random_uuid', 'uuidv4', 'uuidv7'
          )
      )
    UNION ALL
    SELECT element.name, format('has %%s, which is %%s', what, type::regtype)
    FROM element
    JOIN pg_type ON pg_type.oid = type
    WHERE typowner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT name, 'is not the publisher''s to write'
    FROM relation
    WHERE %(is_written)s
      AND (
          relnamespace IN (
              SELECT oid
              FROM pg_namespace
              WHERE nspname IN (
                  'tallyweir', 'tallyweir_participant', 'pg_catalog', 'information_schema'
              )
          )
          OR EXISTS (
              SELECT
              FROM pg_roles AS publisher
              WHERE rolname = 'tallyweir_publisher'
                AND has_table_privilege(
                    publisher.oid, to_regclass('tallyweir.pipeline')::oid, 'INSERT'
                )
                AND NOT has_table_privilege(publisher.oid, relation.oid, 'INSERT')
          )
      )
)
SELECT DISTINCT name, what
FROM problem
ORDER BY 1, 2;
