-- The statements that every act of an operator needs.

-- name: begin_settings
-- Drivers wait for an act, so Postgres ends one whose caller sleeps or is gone.
SELECT set_config('lock_timeout', %(timeout)s, true),
       set_config('idle_in_transaction_session_timeout', '60s', true);

-- name: hold_snapshots
-- Holds an advisory lock until the act ends. A snapshot holds the same lock
-- (snapshot.sql). So does the drop of a bucket of seen IDs, for an instant and before
-- it takes any other lock.
SELECT pg_advisory_xact_lock(7255949, pipeline_number)
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: hurry
-- For an act that renames or drops tables: while it waits, others queue up behind it.
SELECT set_config('lock_timeout', '2s', true);

-- name: note_act
INSERT INTO tallyweir.act (pipeline, epoch, kind, reason, after_sequence, detail)
VALUES (
    %(pipeline)s, %(epoch)s, %(kind)s, %(reason)s, %(after_sequence)s, %(detail)s
);

-- name: set_actor
-- Set for the session, because an act takes more than one transaction.
SELECT set_config('tallyweir.actor', %(name)s, false);
