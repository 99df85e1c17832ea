-- Everything that the home database holds about one ID.
-- {table} is an append output and {event_id} its column, both already quoted.

-- name: committed_rows
SELECT kafka_topic AS topic, kafka_partition AS partition, kafka_offset AS "offset"
FROM {table}
WHERE {event_id} = %(event_id)s;

-- name: committed_rows_by_position
SELECT kafka_topic AS topic, kafka_partition AS partition, kafka_offset AS "offset"
FROM {table}
WHERE kafka_topic = %(topic)s
  AND kafka_partition = %(partition)s
  AND kafka_offset = %(offset)s;

-- name: put_aside
-- {table} is a table of events that became no result; {told} are its columns.
SELECT kafka_topic AS topic, kafka_partition AS partition, kafka_offset AS "offset",
       {told}
FROM tallyweir.{table}
WHERE pipeline = %(pipeline)s
  AND event_id = %(event_id)s;

-- name: replaced_rows
-- Includes the batch that committed the row, and the batch that replaced it.
SELECT replaced.kafka_topic AS topic, replaced.kafka_partition AS partition,
       replaced.kafka_offset AS "offset", replaced.output_table AS output,
       span.sequence, replaced.sequence AS replaced_in, published.run
FROM tallyweir.replaced_row AS replaced
JOIN tallyweir.batch_run AS published USING (pipeline, sequence)
LEFT JOIN LATERAL (
    SELECT covering.sequence
    FROM tallyweir.batch_partition AS covering
    WHERE covering.pipeline = replaced.pipeline
      AND covering.topic = replaced.kafka_topic
      AND covering.partition = replaced.kafka_partition
      AND replaced.kafka_offset >= covering.from_offset
      AND replaced.kafka_offset < covering.until_offset
      AND NOT EXISTS (
          SELECT
          FROM tallyweir.put_aside AS aside
          WHERE aside.pipeline = covering.pipeline
            AND aside.kafka_topic = covering.topic
            AND aside.kafka_partition = covering.partition
            AND aside.kafka_offset = replaced.kafka_offset
            AND aside.sequence = covering.sequence
      )
    ORDER BY covering.sequence
    LIMIT 1
) AS span ON true
WHERE replaced.pipeline = %(pipeline)s
  AND replaced.event_id = %(event_id)s;

-- name: waiting_messages
-- The relay deletes messages from the outbox when it has sent them.
SELECT kafka_topic AS topic, kafka_partition AS partition, kafka_offset AS "offset",
       sequence, 'outbox:' || topic AS output
FROM tallyweir.outbox
WHERE pipeline = %(pipeline)s
  AND event_id = %(event_id)s;

-- name: redrives
-- All redrives from or to a position, followed in both directions.
WITH RECURSIVE reached (partition, "offset") AS (
    VALUES (%(partition)s::integer, %(offset)s::bigint)
    UNION
    SELECT other.partition, other."offset"
    FROM reached
    JOIN tallyweir.redrive AS note
        ON note.pipeline = %(pipeline)s
       AND note.kafka_topic = %(topic)s
       AND ((note.kafka_partition = reached.partition
             AND note.kafka_offset = reached."offset")
            OR (note.new_partition = reached.partition
                AND note.new_offset = reached."offset"))
    CROSS JOIN LATERAL (
        VALUES (note.kafka_partition, note.kafka_offset),
               (note.new_partition, note.new_offset)
    ) AS other (partition, "offset")
    WHERE other."offset" IS NOT NULL
)
SELECT note.kafka_topic AS topic, note.kafka_partition AS partition,
       note.kafka_offset AS "offset", note.new_partition, note.new_offset,
       note.reason, note.asked_by, note.asked_at, note.sent_at
FROM tallyweir.redrive AS note
JOIN reached
    ON note.kafka_partition = reached.partition
   AND note.kafka_offset = reached."offset"
WHERE note.pipeline = %(pipeline)s
  AND note.kafka_topic = %(topic)s
ORDER BY note.kafka_partition, note.kafka_offset, note.attempt;

-- name: dead_letter_at
-- The letter of a copy whose ID was unreadable, found by the position it came from.
SELECT kafka_topic AS topic, kafka_partition AS partition, kafka_offset AS "offset",
       {told}
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s
  AND kafka_topic = %(topic)s
  AND kafka_partition = %(partition)s
  AND kafka_offset = %(offset)s;

-- name: batch_at
-- The batch that made a position's row. If several batches have read the position, it
-- is the first that did not put it aside and whose rows were not truncated.
SELECT span.sequence
FROM tallyweir.batch_partition AS span
JOIN tallyweir.standing_from AS standing USING (pipeline)
WHERE span.pipeline = %(pipeline)s
  AND span.topic = %(topic)s
  AND span.partition = %(partition)s
  AND span.from_offset <= %(offset)s
  AND span.until_offset > %(offset)s
ORDER BY EXISTS (
             SELECT
             FROM tallyweir.put_aside AS aside
             WHERE aside.pipeline = span.pipeline
               AND aside.kafka_topic = span.topic
               AND aside.kafka_partition = span.partition
               AND aside.kafka_offset = %(offset)s
               AND aside.sequence = span.sequence
         ),
         span.sequence < standing.sequence,
         span.sequence
LIMIT 1;

-- name: outputs_of
-- The append outputs to which a batch was written, each with its condition at the time.
SELECT taken.sequence, taken.output_table AS output, output ->> 'where' AS condition
FROM tallyweir.batch_output AS taken
JOIN LATERAL (
    SELECT definition
    FROM tallyweir.pipeline_version AS version
    WHERE version.pipeline = taken.pipeline
      AND version.from_sequence < taken.sequence
    ORDER BY version.version DESC
    LIMIT 1
) AS version_then ON true
CROSS JOIN LATERAL jsonb_array_elements(version_then.definition -> 'outputs') AS output
WHERE taken.pipeline = %(pipeline)s
  AND taken.sequence = ANY (%(sequences)s)
  AND taken.kind = 'append'
  AND output ->> 'table' = taken.output_table
  AND output ->> 'where' IS NOT NULL;

-- name: windows_of
-- The window outputs to which a batch added events.
SELECT sequence, output_table
FROM tallyweir.batch_output
WHERE pipeline = %(pipeline)s
  AND sequence = ANY (%(sequences)s)
  AND kind = 'window'
  AND events > 0
ORDER BY sequence, output_table;

-- name: batches
SELECT sequence, epoch, published_at
FROM tallyweir.batch
WHERE pipeline = %(pipeline)s
  AND sequence = ANY (%(sequences)s);

-- name: letters_without_id
-- An erased letter cannot be the event in question, so it does not count.
SELECT count(DISTINCT (kafka_topic, kafka_partition, kafka_offset)) AS letters
FROM tallyweir.dead_letter AS letter
WHERE pipeline = %(pipeline)s
  AND event_id IS NULL
  AND NOT {is_erased};

-- name: erasures
SELECT DISTINCT act.epoch, act.done_at, act.done_by, act.reason
FROM tallyweir.erased_id AS erased
JOIN tallyweir.act AS act USING (pipeline, epoch)
WHERE erased.pipeline = %(pipeline)s
  AND erased.fingerprint = ANY (%(fingerprints)s)
ORDER BY act.epoch;

-- name: fingerprint_key
SELECT fingerprint_key
FROM tallyweir.installation;
