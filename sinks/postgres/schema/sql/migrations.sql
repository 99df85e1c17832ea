-- What a database has been migrated to, and who may go on.

-- name: table_exists
-- Of a schema that the role may not even look into, Postgres says so by an error.
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
