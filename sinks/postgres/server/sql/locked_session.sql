-- The session of a service of which one instance works at a time, and its lock.

-- name: session_settings
-- A paused service must not block its successor: the server ends its session, and with
-- it the lock.
SELECT set_config('idle_session_timeout', %(idle_timeout)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, false),
       set_config('lock_timeout', '10s', false)

-- name: try_lock
-- Advisory locks belong to a database, so each home has one service of each kind.
SELECT pg_try_advisory_lock(%(lock)s)

-- name: installation
SELECT installation_id
FROM tallyweir.installation
