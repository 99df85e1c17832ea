-- Dead letters for people to look through. Only "letter" reads what a record holds.

-- name: newest_note
-- A join for statements that select from "letter": the newest note of its redrives.
LEFT JOIN LATERAL (
    SELECT attempt, asked_at, sent_at, new_partition, new_offset
    FROM tallyweir.redrive
    WHERE redrive.pipeline = letter.pipeline
      AND redrive.kafka_topic = letter.kafka_topic
      AND redrive.kafka_partition = letter.kafka_partition
      AND redrive.kafka_offset = letter.kafka_offset
    ORDER BY attempt DESC
    LIMIT 1
) AS note ON true

-- name: is_erased
-- A condition: the letter was erased, and only its position is left.
EXISTS (
    SELECT
    FROM tallyweir.erased_row AS erased
    WHERE erased.pipeline = letter.pipeline
      AND erased.kept_in = 'aside:dead_letter'
      AND erased.kafka_topic = letter.kafka_topic
      AND erased.kafka_partition = letter.kafka_partition
      AND erased.kafka_offset = letter.kafka_offset
)

-- name: is_newest
-- A condition: the letter is the newest of its record; a record may die several times.
NOT EXISTS (
    SELECT
    FROM tallyweir.dead_letter AS newer
    WHERE newer.pipeline = letter.pipeline
      AND newer.kafka_topic = letter.kafka_topic
      AND newer.kafka_partition = letter.kafka_partition
      AND newer.kafka_offset = letter.kafka_offset
      AND newer.sequence > letter.sequence
)

-- name: groups
-- A letter counts as redriven once Kafka has acknowledged the new copy. A record counts
-- once, with the reason it died of last.
SELECT letter.reason,
       count(*) AS letters,
       count(*) FILTER (WHERE note.is_sent) AS redriven,
       max(letter.sequence) AS last_sequence,
       min(letter.kafka_timestamp) AS first_at,
       max(letter.kafka_timestamp) AS last_at,
       (array_agg(letter.detail ORDER BY letter.sequence DESC))[1] AS last_detail
FROM tallyweir.dead_letter AS letter
LEFT JOIN (
    SELECT kafka_topic, kafka_partition, kafka_offset,
           bool_or(sent_at IS NOT NULL) AS is_sent
    FROM tallyweir.redrive
    WHERE pipeline = %(pipeline)s
    GROUP BY kafka_topic, kafka_partition, kafka_offset
) AS note USING (kafka_topic, kafka_partition, kafka_offset)
WHERE letter.pipeline = %(pipeline)s
  AND {is_newest}
GROUP BY letter.reason
ORDER BY letters DESC, letter.reason;

-- name: page
SELECT letter.kafka_topic AS topic,
       letter.kafka_partition AS partition,
       letter.kafka_offset AS "offset",
       letter.sequence,
       letter.kafka_timestamp,
       letter.reason,
       letter.detail,
       letter.event_id,
       octet_length(letter.payload) AS payload_bytes,
       note.asked_at AS redriven_at,
       note.new_partition,
       note.new_offset
FROM tallyweir.dead_letter AS letter
{newest_note}
WHERE letter.pipeline = %(pipeline)s
  AND letter.reason = %(reason)s
  AND {is_newest}
ORDER BY letter.sequence DESC, letter.kafka_topic, letter.kafka_partition,
         letter.kafka_offset
LIMIT %(limit)s
OFFSET %(skipped)s;

-- name: letter
SELECT reason, detail, event_id, sequence, kafka_timestamp, key, payload
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s
  AND kafka_topic = %(topic)s
  AND kafka_partition = %(partition)s
  AND kafka_offset = %(offset)s
ORDER BY sequence DESC
LIMIT 1;

-- name: redrives
SELECT attempt, reason, asked_by, asked_at, new_partition, new_offset, sent_at
FROM tallyweir.redrive
WHERE pipeline = %(pipeline)s
  AND kafka_topic = %(topic)s
  AND kafka_partition = %(partition)s
  AND kafka_offset = %(offset)s
ORDER BY attempt;
