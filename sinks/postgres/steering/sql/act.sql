-- What every act of an operator does.

-- name: begin_settings
-- Drivers wait for an act to end. One whose caller sleeps or is gone ends by itself.
SELECT set_config('lock_timeout', %(timeout)s, true),
       set_config('idle_in_transaction_session_timeout', '60s', true);

-- name: hold_snapshots
-- Until the act ends. Who takes a snapshot holds the lock (snapshot.sql), and so does who
-- drops a bucket of seen IDs, for an instant and before any other.
SELECT pg_advisory_xact_lock(7255949, pipeline_number)
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: hurry
-- For an act that renames or drops tables: others queue up behind it while it waits.
SELECT set_config('lock_timeout', '2s', true);

-- name: note_act
INSERT INTO tallyweir.act (pipeline, epoch, kind, reason, after_sequence, detail)
VALUES (
    %(pipeline)s, %(epoch)s, %(kind)s, %(reason)s, %(after_sequence)s, %(detail)s
);

-- name: set_actor
-- For the session: an act is more than one transaction.
SELECT set_config('tallyweir.actor', %(name)s, false);
