-- The migrations that a database has, and whether the role may apply more.

-- name: table_exists
-- If the role may not use the schema at all, Postgres raises an error.
SELECT to_regclass(%(table)s) IS NOT NULL

-- name: applied
SELECT migration_id
FROM {migrations}

-- name: may_migrate
SELECT current_user::text,
       current_database()::text,
       coalesce(
           (
               SELECT pg_has_role(nspowner, 'USAGE')
               FROM pg_namespace
               WHERE nspname = %(schema)s
           ),
           has_database_privilege(current_database(), 'CREATE')
       )
