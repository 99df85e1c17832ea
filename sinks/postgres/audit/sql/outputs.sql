-- The rows of an append output, held against the ranges and counts of the ledger.
-- {table} is the output's table, already quoted.

-- name: missing_columns
-- Columns of the output that a person may have dropped; all when the table is gone.
SELECT needed.name
FROM unnest(%(columns)s::text[]) AS needed (name)
LEFT JOIN pg_attribute AS present
    ON present.attrelid = to_regclass(%(table)s)
   AND present.attname = needed.name
   AND NOT present.attisdropped
WHERE present.attname IS NULL;

-- name: column_type
SELECT format_type(atttypid, NULL) AS type
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attname = %(column)s
  AND NOT attisdropped;

-- name: tallied_rows
-- Rows per batch and partition. A row belongs to the range that holds its offset;
-- width_bucket finds it by binary search, a join on both bounds would compare every
-- row with every range. Rows of topics that the pipeline never read are another's.
WITH span AS (
    SELECT part.sequence, part.topic, part.partition,
           part.from_offset, part.until_offset,
           -- A batch from before the output was added owes it nothing.
           CASE WHEN output.sequence IS NULL THEN 0 ELSE part.committed END
               AS committed
    FROM tallyweir.batch_partition AS part
    LEFT JOIN tallyweir.batch_output AS output
        ON output.pipeline = part.pipeline
       AND output.sequence = part.sequence
       AND output.output_table = %(output_table)s
    WHERE part.pipeline = %(pipeline)s
),
bounds AS (
    SELECT topic, partition,
           array_agg(from_offset ORDER BY from_offset) AS froms,
           array_agg(until_offset ORDER BY from_offset) AS untils,
           array_agg(sequence ORDER BY from_offset) AS sequences
    FROM span
    WHERE until_offset > from_offset
    GROUP BY topic, partition
),
placed AS (
    SELECT r.kafka_topic AS topic, r.kafka_partition AS partition, r.kafka_offset,
           b.untils, b.sequences,
           width_bucket(r.kafka_offset, b.froms) AS place
    FROM {table} AS r
    LEFT JOIN bounds AS b
        ON b.topic = r.kafka_topic
       AND b.partition = r.kafka_partition
    WHERE r.kafka_topic IN (SELECT topic FROM span)
),
owned AS (
    SELECT topic, partition, kafka_offset,
           CASE WHEN place > 0 AND kafka_offset < untils[place]
                THEN sequences[place] END AS sequence
    FROM placed
),
found AS (
    SELECT sequence, topic, partition,
           count(*) AS events,
           sum(kafka_offset) AS checksum,
           min(kafka_offset) AS lowest,
           max(kafka_offset) AS highest
    FROM owned
    GROUP BY sequence, topic, partition
)
SELECT sequence, topic, partition,
       coalesce(span.committed, 0) AS claimed,
       coalesce(found.events, 0) AS found,
       coalesce(found.checksum, 0) AS checksum,
       found.lowest, found.highest
FROM span
FULL JOIN found USING (sequence, topic, partition)
ORDER BY sequence, topic, partition;

-- name: output_claims
-- What each batch says it appended to the output, and its checksum.
SELECT output.sequence, output.events, output.rows, batch.checksum
FROM tallyweir.batch_output AS output
JOIN tallyweir.batch AS batch USING (pipeline, sequence)
WHERE output.pipeline = %(pipeline)s
  AND output.output_table = %(output_table)s
ORDER BY output.sequence;

-- name: next_offsets
SELECT topic, partition, next_offset
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s;

-- name: doubled_positions
-- One Kafka record that became two rows.
SELECT kafka_topic AS topic, kafka_partition AS partition, kafka_offset,
       count(*) AS rows
FROM {table}
WHERE kafka_topic IN (
    SELECT topic
    FROM tallyweir.partition_progress
    WHERE pipeline = %(pipeline)s
)
GROUP BY kafka_topic, kafka_partition, kafka_offset
HAVING count(*) > 1
ORDER BY kafka_topic, kafka_partition, kafka_offset;

-- name: settled_twice
-- One Kafka record that became a result and was put aside as well.
SELECT r.kafka_topic AS topic, r.kafka_partition AS partition, r.kafka_offset,
       aside.fate
FROM (
    SELECT kafka_topic, kafka_partition, kafka_offset, 'a dead letter' AS fate
    FROM tallyweir.dead_letter
    WHERE pipeline = %(pipeline)s
    UNION ALL
    SELECT kafka_topic, kafka_partition, kafka_offset, 'an expired event'
    FROM tallyweir.expired_event
    WHERE pipeline = %(pipeline)s
    UNION ALL
    SELECT kafka_topic, kafka_partition, kafka_offset, 'a duplicate'
    FROM tallyweir.duplicate_event
    WHERE pipeline = %(pipeline)s
) AS aside
JOIN {table} AS r USING (kafka_topic, kafka_partition, kafka_offset)
ORDER BY r.kafka_topic, r.kafka_partition, r.kafka_offset;
