-- The ledger for people to look through: newest first, and added up over time.

-- name: page
SELECT batch.sequence,
       batch.epoch,
       batch.guarantee,
       batch.restagings,
       batch.watermark_after,
       batch.planned_at,
       batch.published_at,
       extract(epoch FROM batch.staged_at - batch.planned_at)::float8 AS stage_s,
       extract(epoch FROM batch.published_at - batch.staged_at)::float8 AS publish_s,
       counted.*,
       coalesce(branches.decided, 0) AS branches,
       coalesce(branches.in_doubt, 0) AS branches_in_doubt
FROM tallyweir.batch
CROSS JOIN LATERAL (
    SELECT coalesce(sum(read), 0)::bigint AS read,
           coalesce(sum(committed), 0)::bigint AS committed,
           coalesce(sum(duplicate), 0)::bigint AS duplicate,
           coalesce(sum(dead), 0)::bigint AS dead,
           coalesce(sum(late), 0)::bigint AS late,
           coalesce(sum(expired), 0)::bigint AS expired,
           coalesce(sum(filtered), 0)::bigint AS filtered,
           coalesce(
               jsonb_agg(
                   jsonb_build_array(topic, partition, from_offset, until_offset)
                   ORDER BY topic, partition
               ),
               '[]'
           ) AS ranges
    FROM tallyweir.batch_partition AS covered
    WHERE covered.pipeline = batch.pipeline
      AND covered.sequence = batch.sequence
) AS counted
LEFT JOIN LATERAL (
    SELECT count(*) AS decided,
           count(*) FILTER (WHERE committed_at IS NULL) AS in_doubt
    FROM tallyweir.batch_branch AS branch
    WHERE branch.pipeline = batch.pipeline
      AND branch.sequence = batch.sequence
) AS branches ON true
WHERE batch.pipeline = %(pipeline)s
  AND batch.sequence < %(before)s
ORDER BY batch.sequence DESC
LIMIT %(limit)s;

-- name: history
-- Batches of the newest slots of time, added up; a slot without a batch has no row.
-- Joins all partitions at once: to look them up by batch takes three times as long.
WITH published AS (
    SELECT sequence,
           extract(epoch FROM date_bin(
               make_interval(secs => %(slot_s)s), published_at, 'epoch'
           ))::bigint AS began_s,
           extract(epoch FROM published_at - planned_at)::float8 AS took_s
    FROM tallyweir.batch
    WHERE pipeline = %(pipeline)s
      AND published_at > now() - make_interval(secs => %(slot_s)s * %(slots)s)
), timed AS (
    SELECT began_s,
           count(*) AS batches,
           percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY took_s) AS batch_s
    FROM published
    GROUP BY began_s
), counted AS (
    SELECT began_s,
           sum(read)::bigint AS read,
           sum(duplicate)::bigint AS duplicate,
           sum(dead)::bigint AS dead,
           sum(late)::bigint AS late
    FROM published
    JOIN tallyweir.batch_partition AS covered
      ON covered.pipeline = %(pipeline)s AND covered.sequence = published.sequence
    GROUP BY began_s
)
SELECT began_s,
       batches,
       coalesce(read, 0) AS read,
       coalesce(duplicate, 0) AS duplicate,
       coalesce(dead, 0) AS dead,
       coalesce(late, 0) AS late,
       batch_s[1] AS batch_p50_s,
       batch_s[2] AS batch_p95_s
FROM timed
LEFT JOIN counted USING (began_s)
ORDER BY began_s;

-- name: outputs
-- What each table took from the newest batches.
SELECT output_table,
       kind,
       sum(events)::bigint AS events,
       sum(rows)::bigint AS rows,
       sum(late)::bigint AS late,
       sum(revised)::bigint AS revised
FROM tallyweir.batch_output
WHERE pipeline = %(pipeline)s
  AND sequence > %(after)s
GROUP BY output_table, kind
ORDER BY output_table;

-- name: span
SELECT count(*) AS batches,
       min(planned_at) AS began_at,
       max(published_at) AS ended_at
FROM tallyweir.batch
WHERE pipeline = %(pipeline)s
  AND sequence > %(after)s;

-- name: counts_after
SELECT coalesce(sum(read), 0)::bigint AS read,
       coalesce(sum(committed), 0)::bigint AS committed,
       coalesce(sum(duplicate), 0)::bigint AS duplicate,
       coalesce(sum(dead), 0)::bigint AS dead,
       coalesce(sum(late), 0)::bigint AS late,
       coalesce(sum(expired), 0)::bigint AS expired,
       coalesce(sum(filtered), 0)::bigint AS filtered
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND sequence > %(after)s;
