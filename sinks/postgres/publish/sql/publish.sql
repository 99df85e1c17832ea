-- The publish transaction, in the order in which its statements run.

-- name: begin_settings
SELECT set_config('lock_timeout', '30s', true),
       set_config('statement_timeout', '0', true),
       -- A driver that stalls in the transaction must not keep its successor waiting.
       set_config('idle_in_transaction_session_timeout', '30s', true),
       set_config('synchronous_commit', 'on', true)

-- name: lock_pipeline
-- NO KEY, because a claim's foreign key locks this row FOR KEY SHARE and must not wait.
SELECT watermark, last_sequence
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s
FOR NO KEY UPDATE

-- name: read_watermark
SELECT watermark, last_sequence
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s

-- name: read_positions
SELECT topic, partition, topic_id, next_offset, event_time_max, active_at
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s

-- name: insert_batch
INSERT INTO tallyweir.batch (
    pipeline, sequence, epoch, spark_batch_id, watermark_before, watermark_after,
    checksum, lookups, restagings, guarantee, planned_at, staged_at, published_at
)
VALUES (
    %(pipeline)s, %(sequence)s, %(epoch)s, %(spark_batch_id)s,
    %(watermark_before)s, %(watermark_after)s, %(checksum)s, %(lookups)s::jsonb,
    %(restagings)s, %(guarantee)s, %(planned_at)s,
    greatest(
        %(planned_at)s,
        clock_timestamp() - make_interval(secs => %(since_staged_s)s)
    ),
    clock_timestamp()
)
-- From the WAL position, insert_measures tells how much the rest of the batch writes.
RETURNING pg_current_wal_insert_lsn()::text,
          extract(epoch FROM published_at - planned_at)::float8

-- name: insert_batch_partition
INSERT INTO tallyweir.batch_partition (
    pipeline, sequence, topic, partition, from_offset, until_offset,
    read, committed, duplicate, dead, late, expired, filtered
)
VALUES (
    %(pipeline)s, %(sequence)s, %(topic)s, %(partition)s, %(from_offset)s,
    %(until_offset)s, %(read)s, %(committed)s, %(duplicate)s, %(dead)s, %(late)s,
    %(expired)s, %(filtered)s
)

-- name: insert_batch_output
INSERT INTO tallyweir.batch_output (
    pipeline, sequence, output_table, kind, events, rows, late, late_kept, revised,
    checksum, digests
)
VALUES (
    %(pipeline)s, %(sequence)s, %(output_table)s, %(kind)s,
    %(events)s, %(rows)s, %(late)s, %(late_kept)s, %(revised)s, %(output_checksum)s,
    %(digests)s
)

-- name: insert_batch_run
INSERT INTO tallyweir.batch_run (pipeline, run, sequence, disposition, retracted)
VALUES (%(pipeline)s, %(run)s, %(sequence)s, %(disposition)s, %(retracted)s)

-- name: insert_batch_run_input
INSERT INTO tallyweir.batch_run_input (pipeline, run, partition, name, checksum)
VALUES (%(pipeline)s, %(run)s, %(partition)s, %(name)s, %(checksum)s)

-- name: delete_rows
-- Not TRUNCATE, which keeps readers waiting until the COMMIT, and shows an empty table
-- to older snapshots.
DELETE FROM {table}

-- name: await_merge
-- The DELETE that follows would not see what a merge is about to commit. The last step
-- of a merge takes this lock too (chunks.sql).
SELECT pg_advisory_xact_lock(7255946, pipeline_number)
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s

-- name: forget_seen_ids
DELETE FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s

-- name: forget_watermark
UPDATE tallyweir.pipeline
SET watermark = NULL
WHERE pipeline = %(pipeline)s

-- name: count_corrections
SELECT count(*), count(*) FILTER (WHERE is_filtered)
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])

-- name: delete_corrected
-- Deletes rows of earlier events, by the IDs of the events that correct them. Rows of
-- topics that the pipeline never read are not its own, and stay.
DELETE FROM {target} AS former
USING {staging} AS correction
WHERE correction.xmin = ANY(%(transactions)s::xid[])
  AND {former_id} = {id}
  AND former.kafka_topic IN (
      SELECT topic
      FROM tallyweir.partition_progress
      WHERE pipeline = %(pipeline)s
  )
RETURNING former.kafka_topic, former.kafka_partition, former.kafka_offset,
          correction.event_id

-- name: note_replaced
-- If the position was recorded before, a person has put its row back by hand.
WITH gone AS ({deletion})
INSERT INTO tallyweir.replaced_row (
    pipeline, output_table, kafka_topic, kafka_partition, kafka_offset, sequence,
    event_id
)
SELECT %(pipeline)s, %(output_table)s, kafka_topic, kafka_partition, kafka_offset,
       %(sequence)s, event_id
FROM gone
ON CONFLICT DO NOTHING

-- name: move_event_log
INSERT INTO {target} (pipeline, sequence, {columns})
SELECT %(pipeline)s, %(sequence)s, {columns}
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])

-- name: advance_position
INSERT INTO tallyweir.partition_progress AS progress (
    pipeline, topic, partition, topic_id, next_offset, event_time_max, active_at
)
VALUES (
    %(pipeline)s, %(topic)s, %(partition)s, %(topic_id)s, %(until_offset)s,
    %(event_time_max)s, %(active_at)s
)
ON CONFLICT (pipeline, topic, partition) DO UPDATE
SET next_offset = EXCLUDED.next_offset,
    event_time_max = EXCLUDED.event_time_max,
    active_at = EXCLUDED.active_at
WHERE progress.next_offset = %(from_offset)s
  AND progress.topic_id = EXCLUDED.topic_id

-- name: advance_pipeline
UPDATE tallyweir.pipeline
SET last_sequence = %(sequence)s,
    watermark = greatest(watermark, %(watermark_after)s)
WHERE pipeline = %(pipeline)s
  AND last_sequence = %(sequence)s - 1

-- name: check_deferred_constraints
SET CONSTRAINTS ALL IMMEDIATE

-- name: insert_measures
-- Adds one row and deletes one. WAL that others write meanwhile is counted too.
WITH forgotten AS (
    DELETE FROM tallyweir.batch_measures
    WHERE pipeline = %(pipeline)s
      AND sequence = %(sequence)s - %(kept)s
)
INSERT INTO tallyweir.batch_measures (pipeline, sequence, measures)
VALUES (
    %(pipeline)s,
    %(sequence)s,
    %(measures)s::jsonb || jsonb_build_object(
        'wal_bytes',
        pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %(wal_from)s::pg_lsn)
    )
)

-- name: keep_samples
-- Keeps for each step the samples of the last batch that had any.
INSERT INTO tallyweir.sample (pipeline, step, output_table, sequence, redacted, rows)
SELECT %(pipeline)s, step, output_table, %(sequence)s, redacted, rows
FROM jsonb_to_recordset(%(steps)s::jsonb)
    AS taken (step text, output_table text, redacted jsonb, rows jsonb)
ON CONFLICT (pipeline, step, output_table) DO UPDATE
SET sequence = EXCLUDED.sequence,
    redacted = EXCLUDED.redacted,
    rows = EXCLUDED.rows

-- name: insert_batch_branch
INSERT INTO tallyweir.batch_branch (pipeline, sequence, branch, gid)
VALUES (%(pipeline)s, %(sequence)s, %(branch)s, %(gid)s)

-- name: newest_decisions
SELECT newest.gid
FROM unnest(%(branches)s::text[]) AS wanted (branch)
CROSS JOIN LATERAL (
    SELECT gid
    FROM tallyweir.batch_branch AS decided
    WHERE decided.pipeline = %(pipeline)s
      AND decided.branch = wanted.branch
    ORDER BY sequence DESC
    LIMIT 1
) AS newest

-- name: count_dead_letters
-- Runs after the commit, for the driver's metrics.
SELECT reason, count(*)
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s
  AND sequence = %(sequence)s
GROUP BY reason
