-- Rows that tasks copied at least once, grouped by the positions they came from.
-- {table} is all that the output has ever held, see rows_ever.

-- name: positions
-- Positions per batch and partition, and the rows that have them. As in tallied_rows, a
-- position belongs to the range that contains it; sequence is null if no range does.
WITH bounds AS ({bounds}),
copied AS (
    SELECT kafka_topic, kafka_partition, kafka_offset, count(*) AS copies
    FROM {table} AS present
    WHERE kafka_topic = ANY (%(read_topics)s)
    GROUP BY kafka_topic, kafka_partition, kafka_offset
),
aside AS (
    SELECT DISTINCT kafka_topic, kafka_partition, kafka_offset
    FROM tallyweir.no_result
    WHERE pipeline = %(pipeline)s
      AND kind IN ('dead_letter', 'filtered_event')
),
placed AS (
    SELECT kafka_topic AS topic, kafka_partition AS partition, kafka_offset, copies,
           aside IS NOT NULL AS is_aside,
           untils, sequences,
           width_bucket(kafka_offset, froms) AS place,
           again.sequence AS settled_later
    FROM copied
    LEFT JOIN aside USING (kafka_topic, kafka_partition, kafka_offset)
    LEFT JOIN bounds
        ON bounds.topic = kafka_topic
       AND bounds.partition = kafka_partition
    LEFT JOIN unnest(
        %(again_topics)s::text[], %(again_partitions)s::integer[],
        %(again_offsets)s::bigint[], %(again_sequences)s::bigint[]
    ) AS again (kafka_topic, kafka_partition, kafka_offset, sequence)
        USING (kafka_topic, kafka_partition, kafka_offset)
),
owned AS (
    SELECT topic, partition, kafka_offset, copies, is_aside,
           CASE WHEN settled_later IS NOT NULL THEN settled_later
                WHEN place > 0 AND kafka_offset < untils[place]
                THEN sequences[place] END AS sequence
    FROM placed
)
SELECT sequence, topic, partition, is_aside,
       count(*) AS positions,
       sum(copies)::bigint AS rows,
       sum(kafka_offset) AS checksum
FROM owned
GROUP BY sequence, topic, partition, is_aside;
