-- Dead letters as people look through them, without what the records hold.

-- name: groups
SELECT reason,
       count(*) AS letters,
       max(sequence) AS last_sequence,
       min(kafka_timestamp) AS first_at,
       max(kafka_timestamp) AS last_at,
       (array_agg(detail ORDER BY sequence DESC))[1] AS last_detail
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s
GROUP BY reason
ORDER BY letters DESC, reason;

-- name: page
SELECT kafka_topic AS topic,
       kafka_partition AS partition,
       kafka_offset AS "offset",
       sequence,
       kafka_timestamp,
       reason,
       detail,
       event_id,
       octet_length(payload) AS payload_bytes
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s
  AND reason = %(reason)s
ORDER BY sequence DESC, kafka_topic, kafka_partition, kafka_offset
LIMIT %(limit)s
OFFSET %(skipped)s;
