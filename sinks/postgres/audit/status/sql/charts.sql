-- The newest batches, added up over slots of time, for charts. Reads the newest 100,000
-- batches, of which measures are kept, because the ledger has no index by time.

-- name: committed
-- Ages of committed events, and the cost of looking up their IDs.
WITH measured AS MATERIALIZED (
    SELECT extract(epoch FROM date_bin(
               make_interval(secs => %(slot_s)s), published_at, 'epoch'
           ))::bigint AS began_s,
           written.measures -> 'ages' AS ages,
           written.measures -> 'ids' AS ids
    FROM tallyweir.batch
    JOIN tallyweir.batch_measures AS written USING (pipeline, sequence)
    WHERE batch.pipeline = %(pipeline)s
      AND batch.sequence > (SELECT last_sequence - 100000 FROM tallyweir.pipeline
                            WHERE pipeline = %(pipeline)s)
      AND published_at > now() - make_interval(secs => %(slot_s)s * %(slots)s)
), counted AS (
    SELECT began_s, age.key AS bucket, sum(age.value::bigint) AS events
    FROM measured
    CROSS JOIN LATERAL jsonb_each_text(ages) AS age
    GROUP BY began_s, age.key
), aged AS (
    SELECT began_s, jsonb_object_agg(bucket, events) AS ages
    FROM counted
    GROUP BY began_s
), searched AS (
    SELECT began_s,
           coalesce(sum((ids ->> 'asked')::bigint), 0)::bigint AS asked,
           coalesce(sum((ids ->> 'looked_up')::bigint), 0)::bigint AS looked_up,
           coalesce(sum((ids ->> 'met')::bigint), 0)::bigint AS met
    FROM measured
    GROUP BY began_s
)
SELECT began_s, coalesce(ages, '{}') AS ages, asked, looked_up, met
FROM searched
LEFT JOIN aged USING (began_s)
ORDER BY began_s;

-- name: phases
SELECT extract(epoch FROM date_bin(
           make_interval(secs => %(slot_s)s), published_at, 'epoch'
       ))::bigint AS began_s,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM staged_at - planned_at)::float8
       ) AS stage_p50_s,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM published_at - staged_at)::float8
       ) AS publish_p50_s
FROM tallyweir.batch
WHERE pipeline = %(pipeline)s
  AND batch.sequence > (SELECT last_sequence - 100000 FROM tallyweir.pipeline
                        WHERE pipeline = %(pipeline)s)
  AND published_at > now() - make_interval(secs => %(slot_s)s * %(slots)s)
GROUP BY began_s
ORDER BY began_s;

-- name: dead
SELECT extract(epoch FROM date_bin(
           make_interval(secs => %(slot_s)s), published_at, 'epoch'
       ))::bigint AS began_s,
       reason,
       count(*) AS letters
FROM tallyweir.batch
JOIN tallyweir.dead_letter AS letter USING (pipeline, sequence)
WHERE batch.pipeline = %(pipeline)s
  AND batch.sequence > (SELECT last_sequence - 100000 FROM tallyweir.pipeline
                        WHERE pipeline = %(pipeline)s)
  AND published_at > now() - make_interval(secs => %(slot_s)s * %(slots)s)
GROUP BY began_s, reason
ORDER BY began_s, reason;

-- name: recent
-- As "committed", but for the last seconds and as one row.
WITH measured AS MATERIALIZED (
    SELECT written.measures -> 'ages' AS ages,
           written.measures -> 'ids' AS ids
    FROM tallyweir.batch
    JOIN tallyweir.batch_measures AS written USING (pipeline, sequence)
    WHERE batch.pipeline = %(pipeline)s
      AND batch.sequence > (SELECT last_sequence - 3000 FROM tallyweir.pipeline
                            WHERE pipeline = %(pipeline)s)
      AND published_at > now() - make_interval(secs => %(seconds)s)
), counted AS (
    SELECT age.key AS bucket, sum(age.value::bigint) AS events
    FROM measured
    CROSS JOIN LATERAL jsonb_each_text(ages) AS age
    GROUP BY age.key
)
SELECT coalesce((SELECT jsonb_object_agg(bucket, events) FROM counted), '{}') AS ages,
       coalesce(sum((ids ->> 'asked')::bigint), 0)::bigint AS asked,
       coalesce(sum((ids ->> 'looked_up')::bigint), 0)::bigint AS looked_up,
       coalesce(sum((ids ->> 'met')::bigint), 0)::bigint AS met
FROM measured;
