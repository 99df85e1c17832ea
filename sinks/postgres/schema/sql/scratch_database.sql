-- Throw-away databases. {name} and {gid} are quoted by psycopg.

-- name: create
-- As Postgres was made, and not as somebody has made template1.
CREATE DATABASE {name} TEMPLATE template0

-- name: left
-- Those to which nobody is connected.
SELECT datname
FROM pg_database
WHERE datname LIKE 'tallyweir\_scratch\_%'
  AND NOT EXISTS (
      SELECT
      FROM pg_stat_activity
      WHERE pg_stat_activity.datname = pg_database.datname
  )

-- name: drop_unused
DROP DATABASE {name}

-- name: drop_used
DROP DATABASE IF EXISTS {name} WITH (FORCE)

-- name: prepared
SELECT gid
FROM pg_prepared_xacts
WHERE database = %(name)s

-- name: roll_back_prepared
ROLLBACK PREPARED {gid}
