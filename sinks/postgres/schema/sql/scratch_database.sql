-- Scratch databases. psycopg quotes {name} and {gid}.

-- name: create
-- template0 is pristine; an administrator may have changed template1.
CREATE DATABASE {name} TEMPLATE template0

-- name: left
-- Scratch databases without connections.
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

-- name: set_watermark
UPDATE tallyweir.pipeline
SET watermark = %(watermark)s::timestamptz
WHERE pipeline = %(pipeline)s
