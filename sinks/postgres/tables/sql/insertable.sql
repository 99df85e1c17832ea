-- What a table does with rows that are written to it. The parameter is its quoted name.

-- name: in_place_of_writes
-- Finds rules, and INSTEAD OF triggers of views.
SELECT 'rule' AS kind, rulename::text AS name
FROM pg_rewrite
WHERE ev_class = to_regclass(%(table)s)
  AND ev_type = ANY (%(events)s::"char"[])
  AND ev_enabled <> 'D'
UNION ALL
SELECT 'INSTEAD OF trigger', tgname::text
FROM pg_trigger
WHERE tgrelid = to_regclass(%(table)s)
  AND tgtype & 64 <> 0
ORDER BY 1, 2

-- name: statement_triggers
-- Finds triggers that run for each INSERT statement.
SELECT tgname::text
FROM pg_trigger
WHERE tgrelid = to_regclass(%(table)s)
  AND NOT tgisinternal
  AND tgtype & 1 = 0
  AND tgtype & 4 <> 0
ORDER BY 1

-- name: has_row_trigger
-- Finds a BEFORE trigger that runs for each row.
SELECT
FROM pg_trigger
WHERE tgrelid = to_regclass(%(table)s)
  AND NOT tgisinternal
  AND tgtype & 3 = 3
LIMIT 1

-- name: lock_holders
-- Finds the holder of a lock that keeps all others from writing to one of the tables.
SELECT relation::regclass::text AS locked,
       held.mode,
       held.pid,
       coalesce(usename::text, 'a prepared transaction'),
       coalesce(application_name, ''),
       coalesce(date_trunc('second', xact_start)::text, 'an unknown time'),
       coalesce(left(query, 200), '')
FROM pg_locks AS held
LEFT JOIN pg_stat_activity AS activity ON activity.pid = held.pid
WHERE held.granted
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND held.relation IN (SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS name)
  AND held.mode IN (
      'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'
  )
  AND held.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY xact_start
LIMIT 1
