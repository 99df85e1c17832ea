-- What the alerts service reads and writes, all in the session that holds its lock.

-- name: pipeline_facts
-- How long the oldest batch has been in doubt, which the overview does not say.
SELECT pipeline.pipeline,
       coalesce(
           (SELECT extract(epoch FROM now() - min(oldest.published_at))
            FROM tallyweir.batch AS oldest
            WHERE oldest.pipeline = pipeline.pipeline
              AND oldest.sequence = through.sequence + 1),
           0
       )::float8 AS in_doubt_s
FROM tallyweir.pipeline AS pipeline
JOIN tallyweir.visible_through AS through USING (pipeline);

-- name: dead_shares
-- Share of dead letters among the records that the batches of a span have read; 0 if
-- they have read none.
SELECT pipeline.pipeline,
       coalesce(sum(covered.dead)::float8 / nullif(sum(covered.read), 0), 0) AS share
FROM tallyweir.pipeline AS pipeline
LEFT JOIN tallyweir.batch
    ON batch.pipeline = pipeline.pipeline
    AND batch.sequence > pipeline.last_sequence - %(batches)s
    AND batch.published_at > now() - %(span)s::interval
LEFT JOIN tallyweir.batch_partition AS covered
    ON covered.pipeline = batch.pipeline AND covered.sequence = batch.sequence
GROUP BY pipeline.pipeline;

-- name: lasting
SELECT alert_id, rule, pipeline, severity, since, mark, value, told, observed_at,
       fired_at
FROM tallyweir.alert
WHERE resolved_at IS NULL
ORDER BY pipeline, rule;

-- name: begin
INSERT INTO tallyweir.alert
    (rule, pipeline, severity, since, mark, value, told, observed_at, fired_at)
VALUES
    (%(rule)s, %(pipeline)s, %(severity)s, %(since)s, %(mark)s, %(value)s, %(told)s,
     %(observed_at)s, %(fired_at)s)
RETURNING alert_id;

-- name: change
UPDATE tallyweir.alert
SET severity = %(severity)s,
    since = %(since)s,
    mark = %(mark)s,
    value = %(value)s,
    told = %(told)s,
    observed_at = %(observed_at)s,
    fired_at = %(fired_at)s
WHERE alert_id = %(alert_id)s
  AND resolved_at IS NULL;

-- name: forget
DELETE FROM tallyweir.alert
WHERE alert_id = %(alert_id)s
  AND fired_at IS NULL;

-- name: resolve
UPDATE tallyweir.alert
SET resolved_at = %(resolved_at)s
WHERE alert_id = %(alert_id)s
  AND fired_at IS NOT NULL
  AND resolved_at IS NULL;

-- name: deliver_firing
INSERT INTO tallyweir.alert_delivery (alert_id, channel, about, due_at)
SELECT %(alert_id)s, channel, 'firing', now()
FROM unnest(%(channels)s::text[]) AS channel;

-- name: deliver_resolved
-- A channel that was notified of the begin is also notified of the end.
INSERT INTO tallyweir.alert_delivery (alert_id, channel, about, due_at)
SELECT alert_id, channel, 'resolved', now()
FROM tallyweir.alert_delivery
WHERE alert_id = %(alert_id)s
  AND about = 'firing';

-- name: due
-- A channel is notified of the end after the begin. One day after the end, a
-- notification that a channel still refuses is dropped as old news. A channel that
-- forgets is notified again while the alert lasts.
SELECT due.channel, due.about, due.failures, due.delivered_at, alert.alert_id,
       alert.rule, alert.pipeline, alert.severity, alert.since, alert.value, alert.told,
       alert.fired_at, alert.resolved_at, clock_timestamp() AS now
FROM tallyweir.alert_delivery AS due
JOIN tallyweir.alert AS alert USING (alert_id)
WHERE due.channel = ANY(%(channels)s)
  AND due.due_at <= now()
  AND (
      due.delivered_at IS NULL
      OR (due.channel = ANY(%(forgetful)s) AND due.about = 'firing'
          AND alert.resolved_at IS NULL)
  )
  AND (
      due.about = 'firing'
      OR NOT EXISTS (
          SELECT FROM tallyweir.alert_delivery AS begun
          WHERE begun.alert_id = due.alert_id
            AND begun.channel = due.channel
            AND begun.about = 'firing'
            AND begun.delivered_at IS NULL
      )
  )
  AND (alert.resolved_at IS NULL OR alert.resolved_at > now() - interval '1 day')
ORDER BY due.due_at, due.alert_id, due.channel, due.about
LIMIT %(rows)s;

-- name: delivered
UPDATE tallyweir.alert_delivery
SET delivered_at = now(),
    failures = 0,
    error_code = NULL,
    due_at = now() + make_interval(secs => %(again_s)s)
WHERE alert_id = %(alert_id)s
  AND channel = %(channel)s
  AND about = %(about)s;

-- name: not_delivered
UPDATE tallyweir.alert_delivery
SET failures = failures + 1,
    error_code = %(error_code)s,
    due_at = now() + make_interval(secs => %(again_s)s)
WHERE alert_id = %(alert_id)s
  AND channel = %(channel)s
  AND about = %(about)s;

-- name: forget_old
DELETE FROM tallyweir.alert
WHERE resolved_at < now() - make_interval(days => %(days)s);

-- name: firing
SELECT alert.pipeline, alert.rule, alert.severity, alert.since, alert.fired_at,
       alert.value, alert.told,
       coalesce(
           (SELECT array_agg(channel ORDER BY channel)
            FROM tallyweir.alert_delivery AS waiting
            WHERE waiting.alert_id = alert.alert_id
              AND waiting.delivered_at IS NULL),
           '{}'
       ) AS untold
FROM tallyweir.alert
WHERE resolved_at IS NULL
  AND fired_at IS NOT NULL
ORDER BY pipeline, severity, fired_at, rule;
