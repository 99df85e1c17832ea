-- What every act of an operator does.

-- name: set_lock_timeout
SELECT set_config('lock_timeout', %(timeout)s, true);

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
