-- Where a pipeline stands and how fast it works, by the database's clock.

-- name: pipeline_state
SELECT pipeline.pipeline_number,
       pipeline.watermark,
       pipeline.last_sequence,
       (SELECT sequence FROM tallyweir.visible_through
        WHERE pipeline = %(pipeline)s) AS visible_through,
       now() AS observed_at,
       claim.epoch,
       claim.host,
       claim.process_id,
       claim.claimed_at,
       claim.run,
       claim.epochs,
       (SELECT max(event_time_max) FROM tallyweir.partition_progress
        WHERE pipeline = %(pipeline)s) AS newest_event_time,
       -- A batch that only fires timers does not count as moving.
       (SELECT max(published_at)
        FROM tallyweir.batch
        JOIN tallyweir.batch_partition AS covered USING (pipeline, sequence)
        WHERE batch.pipeline = %(pipeline)s
          AND batch.sequence > pipeline.last_sequence - 3000
          AND until_offset > from_offset) AS moved_at
FROM tallyweir.pipeline AS pipeline
LEFT JOIN (
    SELECT pipeline, epoch, host, process_id, claimed_at, run,
           count(*) OVER () AS epochs
    FROM tallyweir.epoch_claim
    WHERE pipeline = %(pipeline)s
      AND NOT is_act
    ORDER BY epoch DESC
    LIMIT 1
) AS claim USING (pipeline)
WHERE pipeline.pipeline = %(pipeline)s;

-- name: partitions
-- The definition has durations as people write them, which Postgres reads as intervals.
SELECT part.topic,
       part.partition,
       part.topic_id,
       part.next_offset,
       part.event_time_max,
       part.event_time_max
           - (pipeline.definition #>> '{source,watermark_delay}')::interval
           AS watermark,
       CASE
           WHEN part.active_at IS NULL
               OR now() - part.active_at
                   > (pipeline.definition #>> '{source,idle_timeout}')::interval
               THEN 'idle'
           WHEN part.event_time_max IS NULL THEN 'awaited'
           ELSE 'active'
       END AS clock
FROM tallyweir.partition_progress AS part
JOIN tallyweir.pipeline AS pipeline USING (pipeline)
WHERE pipeline = %(pipeline)s
  -- Leaves out what batch runs read: it is complete, and its clocks do not count.
  AND strpos(part.topic, ':') = 0
ORDER BY part.topic, part.partition;

-- name: recent_batches
-- The newest batches, each with its events; enough of them for both rates.
SELECT batch.sequence,
       batch.epoch,
       batch.planned_at,
       batch.published_at,
       coalesce(sum(part.read), 0)::bigint AS read,
       coalesce(sum(part.committed), 0)::bigint AS committed
FROM tallyweir.batch AS batch
LEFT JOIN tallyweir.batch_partition AS part USING (pipeline, sequence)
WHERE batch.pipeline = %(pipeline)s
  AND (batch.published_at > now() - make_interval(secs => %(seconds)s)
       OR batch.sequence > (SELECT last_sequence FROM tallyweir.pipeline
                            WHERE pipeline = %(pipeline)s) - %(batches)s)
GROUP BY batch.pipeline, batch.sequence
ORDER BY batch.sequence;
