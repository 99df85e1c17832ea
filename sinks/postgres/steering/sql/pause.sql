-- Pauses a pipeline, and resumes it.

-- name: pause
INSERT INTO tallyweir.pause (pipeline, epoch, reason)
VALUES (%(pipeline)s, %(epoch)s, %(reason)s);

-- name: resume
UPDATE tallyweir.pause
SET resumed_at = now(),
    resumed_by = tallyweir.actor()
WHERE pipeline = %(pipeline)s
  AND resumed_at IS NULL;

-- name: call_off_drain
UPDATE tallyweir.drain
SET called_off_at = now()
WHERE pipeline = %(pipeline)s
  AND epoch = %(epoch)s;
