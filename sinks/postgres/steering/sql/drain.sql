-- Draining a pipeline: the request for a drain, and its end.

-- name: ask
INSERT INTO tallyweir.drain (pipeline, epoch, closes_windows)
VALUES (%(pipeline)s, %(epoch)s, %(closes_windows)s);

-- name: end
UPDATE tallyweir.drain
SET drained_epoch = %(drained_epoch)s
WHERE pipeline = %(pipeline)s
  AND epoch = %(epoch)s;

-- name: outcome
SELECT drain.drained_epoch IS NOT NULL AS is_drained,
       called_off_at IS NOT NULL AS is_called_off,
       act.after_sequence AS asked_after,
       ended.after_sequence AS drained_after
FROM tallyweir.drain
JOIN tallyweir.act USING (pipeline, epoch)
LEFT JOIN tallyweir.act AS ended
    ON ended.pipeline = drain.pipeline AND ended.epoch = drain.drained_epoch
WHERE drain.pipeline = %(pipeline)s
  AND drain.epoch = %(epoch)s;
