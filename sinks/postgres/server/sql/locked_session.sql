-- The session of a service that works one at a time, with the lock that makes it so.

-- name: session_settings
-- A service that is paused must not keep its successor waiting: the server ends the
-- session, and with it the lock.
SELECT set_config('idle_session_timeout', %(idle_timeout)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, false),
       set_config('lock_timeout', '10s', false)

-- name: try_lock
-- Advisory locks are the database's own, so every home has one service of each kind.
SELECT pg_try_advisory_lock(%(lock)s)

-- name: installation
SELECT installation_id
FROM tallyweir.installation
