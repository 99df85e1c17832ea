-- What tasks stage, and which attempt each row belongs to.

-- name: begin_staging
-- Staged rows need not survive a crash, so no commit waits for the disk.
SELECT set_config('synchronous_commit', 'off', true),
       set_config('lock_timeout', '30s', true)

-- name: register_attempt
INSERT INTO {attempts} (attempt)
VALUES (%(attempt)s)

-- name: transactions_of
-- Returns the transactions in which the attempts staged, and this one: publishing adds
-- stored windows to the staged ones, and changes staged sessions.
SELECT xmin::text
FROM {attempts}
WHERE attempt = ANY(%(attempts)s)
UNION ALL
SELECT pg_current_xact_id()::xid::text

-- name: columns_in_order
-- Includes dropped columns, since rows still have a place for them.
SELECT attname::text, format_type(atttypid, atttypmod)
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
ORDER BY attnum
