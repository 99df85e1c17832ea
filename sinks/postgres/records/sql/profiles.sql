-- Flame graphs of pipelines; only the newest few are kept.

-- name: keep
INSERT INTO tallyweir.profile (pipeline, kind, host, epoch, seconds, samples, svg)
VALUES (%(pipeline)s, %(kind)s, %(host)s, %(epoch)s, %(seconds)s, %(samples)s, %(svg)s)
RETURNING profile_id;

-- name: forget_older
DELETE FROM tallyweir.profile
WHERE pipeline = %(pipeline)s
  AND kind = %(kind)s
  AND profile_id NOT IN (
      SELECT profile_id
      FROM tallyweir.profile
      WHERE pipeline = %(pipeline)s
        AND kind = %(kind)s
      ORDER BY profile_id DESC
      LIMIT %(kept)s
  );

-- name: list
SELECT profile_id, kind, taken_by, taken_at, host, epoch, seconds, samples
FROM tallyweir.profile
WHERE pipeline = %(pipeline)s
ORDER BY profile_id DESC;

-- name: svg
SELECT svg
FROM tallyweir.profile
WHERE pipeline = %(pipeline)s
  AND profile_id = %(profile_id)s;
