-- All pipelines of a home database at a glance, by the database's clock.

-- name: pipelines
-- Reads the newest 3,000 batches; a driver does not publish more within a minute.
SELECT pipeline.pipeline,
       pipeline.pipeline_number,
       pipeline.definition,
       pipeline.watermark,
       pipeline.last_sequence,
       through.sequence AS visible_through,
       now() AS observed_at,
       part.newest_event_time,
       claim.epoch,
       claim.host,
       claim.process_id,
       claim.claimed_at,
       claim.run,
       last.published_at,
       pause.reason,
       pause.paused_by,
       pause.paused_at,
       drained.epoch IS NOT NULL AS is_drained,
       drain.epoch AS asked_epoch,
       drain.closes_windows,
       asked.reason AS asked_reason,
       asked.done_by AS asked_by,
       asked.done_at AS asked_at,
       recent.batches,
       recent.read,
       recent.committed,
       recent.duplicate,
       recent.dead,
       recent.late,
       recent.expired,
       recent.filtered,
       recent.moved_at
FROM tallyweir.pipeline AS pipeline
JOIN tallyweir.visible_through AS through USING (pipeline)
LEFT JOIN LATERAL (
    SELECT max(event_time_max) AS newest_event_time
    FROM tallyweir.partition_progress AS progress
    WHERE progress.pipeline = pipeline.pipeline
) AS part ON true
LEFT JOIN LATERAL (
    SELECT epoch, host, process_id, claimed_at, run
    FROM tallyweir.epoch_claim
    WHERE epoch_claim.pipeline = pipeline.pipeline
      AND NOT is_act
    ORDER BY epoch DESC
    LIMIT 1
) AS claim ON true
LEFT JOIN tallyweir.pause AS pause
    ON pause.pipeline = pipeline.pipeline AND pause.resumed_at IS NULL
LEFT JOIN tallyweir.drain AS drained
    ON drained.pipeline = pause.pipeline AND drained.drained_epoch = pause.epoch
LEFT JOIN tallyweir.drain AS drain
    ON drain.pipeline = pipeline.pipeline
    AND drain.drained_epoch IS NULL
    AND drain.called_off_at IS NULL
LEFT JOIN tallyweir.act AS asked
    ON asked.pipeline = drain.pipeline AND asked.epoch = drain.epoch
LEFT JOIN tallyweir.batch AS last
    ON last.pipeline = pipeline.pipeline AND last.sequence = pipeline.last_sequence
CROSS JOIN LATERAL (
    SELECT count(DISTINCT batch.sequence) AS batches,
           coalesce(sum(read), 0)::bigint AS read,
           coalesce(sum(committed), 0)::bigint AS committed,
           coalesce(sum(duplicate), 0)::bigint AS duplicate,
           coalesce(sum(dead), 0)::bigint AS dead,
           coalesce(sum(late), 0)::bigint AS late,
           coalesce(sum(expired), 0)::bigint AS expired,
           coalesce(sum(filtered), 0)::bigint AS filtered,
           max(published_at) FILTER (WHERE until_offset > from_offset) AS moved_at
    FROM tallyweir.batch
    JOIN tallyweir.batch_partition AS covered USING (pipeline, sequence)
    WHERE batch.pipeline = pipeline.pipeline
      AND batch.sequence > pipeline.last_sequence - 3000
      AND batch.published_at > now() - make_interval(secs => %(seconds)s)
) AS recent
ORDER BY pipeline.pipeline;

-- name: next_offsets
SELECT pipeline, topic, partition, next_offset
FROM tallyweir.partition_progress
WHERE strpos(topic, ':') = 0;

-- name: driver_sessions
SELECT application_name, count(*) AS sessions
FROM pg_stat_activity
WHERE datname = current_database()
  AND starts_with(application_name, 'tallyweir p')
GROUP BY application_name;

-- name: waits
-- Drivers that wait for a lock, each with one process that blocks it. Process 0 is a
-- prepared transaction.
SELECT DISTINCT ON (waiting.application_name)
       waiting.application_name,
       extract(epoch FROM clock_timestamp() - waiting.state_change)::float8 AS seconds,
       blocker.process_id,
       holder.application_name AS holder,
       holder.usename::text AS holder_role,
       (SELECT wanted.relation::regclass::text
        FROM pg_locks AS wanted
        WHERE wanted.pid = waiting.pid
          AND NOT wanted.granted
          AND wanted.relation IS NOT NULL
        LIMIT 1) AS relation
FROM pg_stat_activity AS waiting
CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS blocker (process_id)
LEFT JOIN pg_stat_activity AS holder ON holder.pid = blocker.process_id
WHERE waiting.datname = current_database()
  AND starts_with(waiting.application_name, 'tallyweir p')
  AND waiting.wait_event_type = 'Lock'
ORDER BY waiting.application_name, waiting.state_change;
