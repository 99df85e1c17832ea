-- What a database must offer before branches are prepared in it.

-- name: server_facts
SELECT pg_is_in_recovery() AS is_standby,
       current_setting('max_prepared_transactions')::integer AS slots,
       -- Slots belong to the server, not to a database.
       (
           SELECT count(*)
           FROM pg_prepared_xacts
           WHERE NOT starts_with(gid, %(prefix)s)
       ) AS slots_of_others,
       current_user::text AS role,
       current_setting('is_superuser')::boolean AS is_superuser,
       pg_backend_pid() AS backend

-- name: identity
-- No two servers have started in the same microsecond.
SELECT pg_postmaster_start_time(), oid
FROM pg_database
WHERE datname = current_database()

-- name: owned_by_others
SELECT gid, owner::text
FROM pg_prepared_xacts
WHERE database = current_database()
  AND starts_with(gid, %(prefix)s)
  AND owner <> current_user
ORDER BY prepared
LIMIT 1

-- name: logins_in_ledger
-- The first of these applies: the role's setting in the database, the role's, the
-- database's.
SELECT rolname::text
FROM pg_roles
CROSS JOIN LATERAL (
    SELECT coalesce(
        (
            SELECT split_part(setting, '=', 2)
            FROM pg_db_role_setting
            CROSS JOIN unnest(setconfig) AS configured (setting)
            WHERE setrole IN (0, pg_roles.oid)
              AND setdatabase IN (
                  0, (SELECT oid FROM pg_database WHERE datname = current_database())
              )
              AND starts_with(setting, 'search_path=')
            ORDER BY setrole <> 0 DESC, setdatabase <> 0 DESC
            LIMIT 1
        ),
        '"$user", public'
    ) AS path
) AS searched
WHERE rolcanlogin
  AND 'tallyweir' = ANY (
      string_to_array(
          replace(translate(path, '" ', ''), '$user', rolname), ','
      )
  )
ORDER BY rolname

-- name: backend
SELECT pg_backend_pid()

-- name: role
SELECT current_user::text

-- name: trial_settings
SELECT set_config('lock_timeout', '2s', true),
       set_config('statement_timeout', '30s', true)

-- name: table_facts
SELECT row_security_active(relation) AS is_row_secured,
       has_any_column_privilege(relation, 'INSERT')
           AND (
               NOT %(is_updated)s
               OR has_any_column_privilege(relation, 'UPDATE')
               AND has_any_column_privilege(relation, 'SELECT')
           ) AS is_permitted
FROM to_regclass(%(table)s) AS relation
WHERE relation IS NOT NULL

-- name: fillable_columns
-- Columns that a statement may fill, except those with a default or an identity.
SELECT attname::text AS name,
       attnotnull AS is_required,
       typcategory::text AS category,
       typname::text AS kind,
       (
           SELECT enumlabel::text
           FROM pg_enum
           WHERE enumtypid = atttypid
           ORDER BY enumsortorder
           LIMIT 1
       ) AS first_label
FROM pg_attribute
JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
  AND NOT attisdropped
  AND NOT atthasdef
  AND attidentity = ''
ORDER BY attnum

-- name: insert_made_up
INSERT INTO {table} ({columns})
VALUES ({values})

-- name: insert_nothing
INSERT INTO {table}
DEFAULT VALUES

-- name: insert_copy
INSERT INTO {table} ({columns})
SELECT {columns}
FROM {table}
LIMIT 1

-- name: returning_place
-- This needs the right to read, which a role that only appends may lack.
RETURNING tableoid, ctid::text

-- name: update_tried
UPDATE {table}
SET {column} = {column}
WHERE tableoid = %(tableoid)s
  AND ctid = %(ctid)s::tid

-- name: check_constraints
SET CONSTRAINTS ALL IMMEDIATE
