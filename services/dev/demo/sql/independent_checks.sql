-- The demo's own count of the result tables, apart from everything that verify reads.

-- name: event_ids
SELECT event_id FROM departures

-- name: windows
SELECT window_start, origin, airline, flights, cancelled,
       coalesce(mean_delay * (flights - cancelled), 0)::double precision AS delay_sum,
       worst_delay
FROM departures_by_hour

-- name: put_aside
SELECT
    (SELECT count(*) FROM tallyweir.dead_letter WHERE pipeline = %(pipeline)s)
        AS dead,
    (SELECT count(*) FROM tallyweir.duplicate_event WHERE pipeline = %(pipeline)s)
        AS duplicate,
    (SELECT count(*) FROM tallyweir.late_event WHERE pipeline = %(pipeline)s)
        AS late,
    (SELECT count(*) FROM tallyweir.expired_event WHERE pipeline = %(pipeline)s)
        AS expired

-- name: dead_for_reason
SELECT count(*)
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s
  AND reason = %(reason)s

-- name: repeats_of_other_batches
-- Counts repeats that only the catalog of seen IDs can detect, because their first copy
-- was published with an earlier batch.
SELECT count(*)
FROM tallyweir.duplicate_event AS repeat
JOIN departures AS kept
    ON kept.event_id = repeat.event_id
JOIN tallyweir.batch_partition AS home
    ON home.pipeline = repeat.pipeline
   AND home.topic = kept.kafka_topic
   AND home.partition = kept.kafka_partition
   AND kept.kafka_offset >= home.from_offset
   AND kept.kafka_offset < home.until_offset
WHERE repeat.pipeline = %(pipeline)s
  AND home.sequence < repeat.sequence
