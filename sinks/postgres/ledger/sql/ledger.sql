-- What the ledger says about a pipeline, and where it contradicts itself.

-- name: pin_path
-- Otherwise Postgres would use a function or operator of public that fits a call better
-- than the server's, and run it with the rights of the role that acts or reads.
SET LOCAL search_path = pg_catalog, pg_temp;

-- name: pipeline_row
-- All that a check needs to know about the pipeline itself.
SELECT pipeline_number,
       (SELECT installation_id FROM tallyweir.installation) AS installation_id,
       definition,
       -- A duration as people write it; NULL if repeats cannot happen.
       extract(epoch FROM (definition #>> '{deduplicate,horizon}')::interval)::bigint
           AS horizon_s,
       bucket_seconds,
       watermark,
       last_sequence,
       -- A driver notes where it begins to read before it reads.
       EXISTS (
           SELECT
           FROM tallyweir.partition_progress AS progress
           WHERE progress.pipeline = pipeline.pipeline
             AND strpos(progress.topic, ':') = 0
       ) AS is_streamed
FROM tallyweir.pipeline AS pipeline
WHERE pipeline = %(pipeline)s;

-- name: accepted_losses
-- The newest accepted loss of each output.
SELECT DISTINCT ON (output_table) output_table, through_sequence, rows, reason
FROM tallyweir.accepted_loss
WHERE pipeline = %(pipeline)s
ORDER BY output_table, through_sequence DESC;

-- name: known_pipelines
SELECT pipeline
FROM tallyweir.pipeline
ORDER BY pipeline;

-- name: totals
SELECT coalesce(sum(read), 0)::bigint AS read,
       coalesce(sum(committed), 0)::bigint AS committed,
       coalesce(sum(duplicate), 0)::bigint AS duplicate,
       coalesce(sum(dead), 0)::bigint AS dead,
       coalesce(sum(late), 0)::bigint AS late,
       coalesce(sum(expired), 0)::bigint AS expired,
       coalesce(sum(filtered), 0)::bigint AS filtered
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s;

-- name: ledger_size
SELECT (SELECT count(*) FROM tallyweir.batch
        WHERE pipeline = %(pipeline)s) AS batches,
       (SELECT count(*) FROM tallyweir.batch_partition
        WHERE pipeline = %(pipeline)s) AS ranges,
       (SELECT count(*) FROM tallyweir.epoch_claim
        WHERE pipeline = %(pipeline)s
          AND NOT is_act) AS drivers,
       (SELECT coalesce(sum(until_offset - from_offset), 0)::bigint
        FROM tallyweir.accepted_gap
        WHERE pipeline = %(pipeline)s) AS offsets_given_up,
       (SELECT coalesce(sum(until_offset - from_offset), 0)::bigint
        FROM tallyweir.offset_reset
        WHERE pipeline = %(pipeline)s
          AND until_offset > from_offset) AS offsets_skipped,
       (SELECT coalesce(sum(from_offset - until_offset), 0)::bigint
        FROM tallyweir.offset_reset
        WHERE pipeline = %(pipeline)s
          AND until_offset < from_offset) AS offsets_read_again;

-- name: dead_by_reason
SELECT reason, count(*) AS events
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s
GROUP BY reason
ORDER BY events DESC, reason;

-- name: steps
-- Ranges, accepted gaps and moves: what positions have passed.
SELECT topic, partition, sequence, 0 AS move, from_offset, until_offset
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
UNION ALL
-- A gap was accepted, or a position moved, after the batch of its number.
SELECT topic, partition, after_sequence, move, from_offset, until_offset
FROM tallyweir.accepted_gap
WHERE pipeline = %(pipeline)s
UNION ALL
SELECT topic, partition, after_sequence, move, from_offset, until_offset
FROM tallyweir.offset_reset
WHERE pipeline = %(pipeline)s

-- name: broken_ranges
-- Ranges, accepted gaps and moves in the order of batches: each must begin where the
-- one before it in its partition ended.
WITH step AS ({steps}),
chained AS (
    SELECT topic, partition, sequence, from_offset,
           lag(until_offset) OVER former AS expected,
           lag(sequence) OVER former AS former_sequence
    FROM step
    WINDOW former AS (
        PARTITION BY topic, partition
        ORDER BY sequence, move, from_offset
    )
)
SELECT topic, partition, sequence, from_offset, expected, former_sequence
FROM chained
WHERE from_offset <> expected
ORDER BY topic, partition, sequence;

-- name: broken_ends
-- Partitions whose position differs from the end of their last range, gap or move.
WITH step AS ({steps}),
final AS (
    SELECT DISTINCT ON (topic, partition)
           topic, partition, sequence, until_offset
    FROM step
    ORDER BY topic, partition, sequence DESC, move DESC, from_offset DESC
)
SELECT final.topic, final.partition, final.sequence, final.until_offset,
       progress.next_offset
FROM final
LEFT JOIN tallyweir.partition_progress AS progress
    ON progress.pipeline = %(pipeline)s
   AND progress.topic = final.topic
   AND progress.partition = final.partition
WHERE progress.next_offset IS DISTINCT FROM final.until_offset
ORDER BY final.topic, final.partition;

-- name: broken_sequences
-- Each batch follows the one before it, or batches that restores have taken back; the
-- first is 1. The row that is added stands for the batch after the last, by the
-- pipeline's own counter.
WITH numbered AS (
    SELECT sequence AS first, sequence AS last, true AS is_batch
    FROM tallyweir.batch
    WHERE pipeline = %(pipeline)s
    UNION ALL
    SELECT last_sequence + 1, last_sequence + 1, true
    FROM tallyweir.pipeline
    WHERE pipeline = %(pipeline)s
    UNION ALL
    -- One restore may have taken back what an earlier one had left.
    SELECT after_sequence + 1, through_sequence, false
    FROM tallyweir.restore
    WHERE pipeline = %(pipeline)s
      AND through_sequence > after_sequence
)
SELECT former + 1 AS expected, first AS found
FROM (
    SELECT first, is_batch,
           coalesce(max(last) OVER (
               ORDER BY first, is_batch, last
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ), 0) AS former
    FROM numbered
) AS followed
WHERE CASE WHEN is_batch THEN first <> former + 1 ELSE first > former + 1 END
ORDER BY first;

-- name: broken_epochs
-- Batches whose epoch was never claimed, or that an older driver published after a
-- newer one.
SELECT followed.sequence, followed.epoch, followed.former_epoch,
       claim.epoch IS NOT NULL AS claimed
FROM (
    SELECT sequence, epoch, lag(epoch) OVER (ORDER BY sequence) AS former_epoch
    FROM tallyweir.batch
    WHERE pipeline = %(pipeline)s
) AS followed
LEFT JOIN tallyweir.epoch_claim AS claim
    ON claim.pipeline = %(pipeline)s
   AND claim.epoch = followed.epoch
WHERE claim.epoch IS NULL
   OR followed.epoch < followed.former_epoch
ORDER BY followed.sequence;

-- name: broken_watermarks
-- Every step of the watermark; the pipeline's own value is the last. A watermark that
-- becomes unknown again has also gone back.
WITH step AS (
    SELECT sequence, 0 AS kind, watermark_before AS watermark
    FROM tallyweir.batch
    WHERE pipeline = %(pipeline)s
    UNION ALL
    SELECT sequence, 1, watermark_after
    FROM tallyweir.batch
    WHERE pipeline = %(pipeline)s
    UNION ALL
    SELECT last_sequence, 2, watermark
    FROM tallyweir.pipeline
    WHERE pipeline = %(pipeline)s
)
SELECT sequence, kind, watermark, former
FROM (
    SELECT sequence, kind, watermark,
           lag(watermark) OVER (ORDER BY sequence, kind) AS former
    FROM step
    WHERE sequence >= (
        SELECT sequence FROM tallyweir.standing_from WHERE pipeline = %(pipeline)s
    )
) AS followed
WHERE former IS NOT NULL
  AND (watermark IS NULL OR watermark < former)
ORDER BY sequence, kind;

-- name: topic_ids
SELECT DISTINCT topic, topic_id
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s
  -- Kafka does not know the inputs of batch runs.
  AND strpos(topic, ':') = 0;
