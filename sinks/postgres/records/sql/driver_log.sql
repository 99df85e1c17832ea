-- The newest warnings and errors of drivers.

-- name: add
-- A line that names no batch belongs to the current one.
INSERT INTO tallyweir.driver_log
    (pipeline, at, level, event, sequence, epoch, detail)
SELECT pipeline, %(at)s, %(level)s, %(event)s,
       coalesce(%(sequence)s::bigint, last_sequence + 1), %(epoch)s::bigint, %(detail)s
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: prune
DELETE FROM tallyweir.driver_log
WHERE pipeline = %(pipeline)s
  AND number <= (
      SELECT number
      FROM tallyweir.driver_log
      WHERE pipeline = %(pipeline)s
      ORDER BY number DESC
      OFFSET %(kept)s
      LIMIT 1
  );

-- name: page
SELECT number, at, level, event, sequence, epoch, detail
FROM tallyweir.driver_log
WHERE pipeline = %(pipeline)s
  AND (%(sequence)s::bigint IS NULL OR sequence = %(sequence)s)
  AND (%(before)s::bigint IS NULL OR number < %(before)s)
ORDER BY number DESC
LIMIT %(limit)s;
