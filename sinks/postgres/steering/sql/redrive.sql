-- Dead letters that are to be sent to their topics again.

-- name: try_lock
-- Two operators at once would send the same letters twice.
SELECT pg_try_advisory_lock(
    hashtextextended('tallyweir redrive ' || %(pipeline)s, 0)
) AS is_locked;

-- name: unlock
SELECT pg_advisory_unlock(
    hashtextextended('tallyweir redrive ' || %(pipeline)s, 0)
);

-- name: next_letters
-- In the order of positions, each with its newest note. A record has one letter for
-- each time that it died; only the newest counts, also for its reason.
SELECT letter.kafka_topic AS topic,
       letter.kafka_partition AS partition,
       letter.kafka_offset AS "offset",
       letter.reason,
       letter.event_id,
       letter.key,
       letter.payload,
       coalesce(note.attempt, 0) AS attempts,
       note.sent_at,
       note.asked_at,
       letter.sequence > in_force.from_sequence AS is_of_version_in_force
FROM (
    SELECT DISTINCT ON (kafka_topic, kafka_partition, kafka_offset) *
    FROM tallyweir.dead_letter
    WHERE pipeline = %(pipeline)s
      AND (%(topic)s::text IS NULL
           OR (kafka_topic, kafka_partition, kafka_offset)
               = (%(topic)s, %(partition)s::integer, %(offset)s::bigint))
      AND (kafka_topic, kafka_partition, kafka_offset)
          > (%(after_topic)s, %(after_partition)s, %(after_offset)s)
      -- Leaves out records that die again during this redrive, or it would never end.
      AND sequence <= %(through_sequence)s
    ORDER BY kafka_topic, kafka_partition, kafka_offset, sequence DESC
) AS letter
CROSS JOIN (
    SELECT coalesce(max(from_sequence), 0) AS from_sequence
    FROM tallyweir.pipeline_version
    WHERE pipeline = %(pipeline)s
) AS in_force
{newest_note}
WHERE (%(group)s::text IS NULL OR letter.reason = %(group)s)
  -- An erased letter has nothing left to send.
  AND NOT {is_erased}
ORDER BY letter.kafka_topic, letter.kafka_partition, letter.kafka_offset
LIMIT %(limit)s;

-- name: begin
INSERT INTO tallyweir.redrive
    (pipeline, kafka_topic, kafka_partition, kafka_offset, attempt, reason)
VALUES (
    %(pipeline)s, %(topic)s, %(partition)s, %(offset)s, %(attempt)s, %(reason)s
);

-- name: note_sent
UPDATE tallyweir.redrive
SET new_partition = %(new_partition)s,
    new_offset = %(new_offset)s,
    sent_at = now()
WHERE pipeline = %(pipeline)s
  AND kafka_topic = %(topic)s
  AND kafka_partition = %(partition)s
  AND kafka_offset = %(offset)s
  AND attempt = %(attempt)s;
