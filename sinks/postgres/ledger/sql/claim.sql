-- name: claim_epoch
-- No driver or run can claim while a pause lasts. A claim that sees a pause's number
-- also sees the pause. An act publishes no batch, so it can claim during a pause.
INSERT INTO tallyweir.epoch_claim (
    pipeline, epoch, nonce, host, process_id, run, is_act
)
SELECT %(pipeline)s, coalesce(max(epoch), 0) + 1, %(nonce)s, %(host)s, %(process_id)s,
       %(run)s, %(is_act)s
FROM tallyweir.epoch_claim
WHERE pipeline = %(pipeline)s
HAVING %(is_act)s OR NOT EXISTS (
    SELECT
    FROM tallyweir.pause
    WHERE pipeline = %(pipeline)s
      AND resumed_at IS NULL
)
ON CONFLICT DO NOTHING
RETURNING epoch

-- name: current_pause
SELECT pause.reason, pause.paused_by, pause.paused_at, pipeline.last_sequence,
       EXISTS (
           SELECT
           FROM tallyweir.drain
           WHERE drain.pipeline = pause.pipeline
             AND drained_epoch = pause.epoch
       ) AS is_drained
FROM tallyweir.pause
JOIN tallyweir.pipeline USING (pipeline)
WHERE pipeline = %(pipeline)s
  AND resumed_at IS NULL

-- name: current_drain
SELECT drain.epoch, closes_windows, reason, done_by AS asked_by, done_at AS asked_at
FROM tallyweir.drain
JOIN tallyweir.act USING (pipeline, epoch)
WHERE pipeline = %(pipeline)s
  AND drained_epoch IS NULL
  AND called_off_at IS NULL

-- name: newest_epoch
SELECT epoch, nonce
FROM tallyweir.epoch_claim
WHERE pipeline = %(pipeline)s
ORDER BY epoch DESC
LIMIT 1

-- name: newest_driver_claim
SELECT epoch, nonce
FROM tallyweir.epoch_claim
WHERE pipeline = %(pipeline)s
  AND run IS NULL
  AND NOT is_act
ORDER BY epoch DESC
LIMIT 1

-- name: newest_claim
-- The newest claim with its run, and whether the run has published. A session under the
-- claim's name follows the claim within moments.
SELECT claim.epoch,
       claim.run,
       pipeline.pipeline_number,
       EXISTS (
           SELECT
           FROM tallyweir.batch
           WHERE batch.pipeline = claim.pipeline
             AND batch.epoch = claim.epoch
       ) AS has_published,
       claim.claimed_at > clock_timestamp() - interval '10 seconds' AS is_fresh
FROM tallyweir.epoch_claim AS claim
JOIN tallyweir.pipeline AS pipeline USING (pipeline)
WHERE claim.pipeline = %(pipeline)s
ORDER BY claim.epoch DESC
LIMIT 1

-- name: has_sessions
SELECT EXISTS (
    SELECT
    FROM pg_stat_activity
    WHERE datname = current_database()
      AND application_name = %(application_name)s
)

-- name: read_run
SELECT input.partition, input.name, input.checksum, published.disposition
FROM tallyweir.batch_run AS published
JOIN tallyweir.batch_run_input AS input USING (pipeline, run)
WHERE published.pipeline = %(pipeline)s
  AND published.run = %(run)s
ORDER BY input.partition

-- name: run_counts
SELECT coalesce(sum(read), 0)::bigint AS read,
       coalesce(sum(committed), 0)::bigint AS committed,
       coalesce(sum(duplicate), 0)::bigint AS duplicate,
       coalesce(sum(dead), 0)::bigint AS dead,
       coalesce(sum(late), 0)::bigint AS late,
       coalesce(sum(expired), 0)::bigint AS expired,
       coalesce(sum(filtered), 0)::bigint AS filtered
FROM tallyweir.batch_run AS published
JOIN tallyweir.batch_partition AS part USING (pipeline, sequence)
WHERE published.pipeline = %(pipeline)s
  AND published.run = %(run)s

-- name: input_names
SELECT run, partition, name
FROM tallyweir.batch_run_input
WHERE pipeline = %(pipeline)s

-- name: register_position
INSERT INTO tallyweir.partition_progress (
    pipeline, topic, partition, topic_id, next_offset
)
VALUES (
    %(pipeline)s, %(topic)s, %(partition)s, %(topic_id)s, %(next_offset)s
)
ON CONFLICT DO NOTHING

-- name: create_pipeline_runs
SELECT tallyweir.create_pipeline_runs(%(pipeline)s)

-- name: staging_schemas
SELECT nspname
FROM pg_namespace
WHERE nspname ~ %(pattern)s
  -- A schema that another role made earlier can only be dropped by that role.
  AND pg_has_role(nspowner, 'USAGE')

-- name: drop_staging
DROP SCHEMA IF EXISTS {schema} CASCADE

-- name: fingerprint_key
SELECT fingerprint_key FROM tallyweir.installation

-- name: identify
SELECT installation_id, pipeline_number
FROM tallyweir.pipeline
CROSS JOIN tallyweir.installation
WHERE pipeline = %(pipeline)s

-- name: server_clock
SELECT clock_timestamp()
