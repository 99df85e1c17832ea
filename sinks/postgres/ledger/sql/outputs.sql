-- The rows of an append output, compared with the ranges and counts of the ledger.
-- {table} is the output's table, already quoted; at home see rows_ever.

-- name: ledger_ranges
-- All ranges as arrays.
SELECT coalesce(array_agg(topic), '{}') AS topics,
       coalesce(array_agg(partition), '{}') AS partitions,
       coalesce(array_agg(sequence), '{}') AS sequences,
       coalesce(array_agg(from_offset), '{}') AS froms,
       coalesce(array_agg(until_offset), '{}') AS untils,
       coalesce(array_agg(committed), '{}') AS committed
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s;

-- name: second_chances
SELECT coalesce(array_agg(kafka_topic), '{}') AS topics,
       coalesce(array_agg(kafka_partition), '{}') AS partitions,
       coalesce(array_agg(kafka_offset), '{}') AS offsets,
       coalesce(array_agg(sequence), '{}') AS sequences
FROM tallyweir.second_chance
WHERE pipeline = %(pipeline)s;

-- name: standing_from
SELECT sequence
FROM tallyweir.standing_from
WHERE pipeline = %(pipeline)s;

-- name: bounds
-- The ranges of each partition in the order of offsets, for ``width_bucket``.
SELECT topic, partition,
       array_agg(from_offset ORDER BY from_offset) AS froms,
       array_agg(until_offset ORDER BY from_offset) AS untils,
       array_agg(sequence ORDER BY from_offset) AS sequences
FROM unnest(
    %(topics)s::text[], %(partitions)s::integer[], %(sequences)s::bigint[],
    %(froms)s::bigint[], %(untils)s::bigint[]
) AS span (topic, partition, sequence, from_offset, until_offset)
WHERE until_offset > from_offset
GROUP BY topic, partition

-- name: tallied_rows
-- Rows per batch and partition. A row belongs to the range that holds its offset;
-- width_bucket finds it by binary search, while a join on both bounds would compare
-- every row with every range. If records were read again, a range counts for the
-- offsets that it held first; records that became results at a later reading are
-- listed. Rows of topics that the pipeline never read belong to another pipeline.
WITH bounds AS ({bounds}),
placed AS (
    SELECT r.kafka_topic AS topic, r.kafka_partition AS partition, r.kafka_offset,
           b.untils, b.sequences,
           width_bucket(r.kafka_offset, b.froms) AS place,
           again.sequence AS settled_later
    FROM {table} AS r
    LEFT JOIN bounds AS b
        ON b.topic = r.kafka_topic
       AND b.partition = r.kafka_partition
    LEFT JOIN unnest(
        %(again_topics)s::text[], %(again_partitions)s::integer[],
        %(again_offsets)s::bigint[], %(again_sequences)s::bigint[]
    ) AS again (topic, partition, kafka_offset, sequence)
        ON again.topic = r.kafka_topic
       AND again.partition = r.kafka_partition
       AND again.kafka_offset = r.kafka_offset
    WHERE r.kafka_topic = ANY (%(read_topics)s)
),
owned AS (
    SELECT topic, partition, kafka_offset,
           CASE WHEN settled_later IS NOT NULL THEN settled_later
                WHEN place > 0 AND kafka_offset < untils[place]
                THEN sequences[place] END AS sequence
    FROM placed
)
SELECT sequence, topic, partition,
       count(*) AS found,
       sum(kafka_offset) AS checksum,
       min(kafka_offset) AS lowest,
       max(kafka_offset) AS highest
FROM owned
GROUP BY sequence, topic, partition;

-- name: replaced_rows
-- Stands for a table: the rows of an output that upserts have replaced or that were
-- erased. Rows from before a truncation belong to batches that are no longer checked.
(
    SELECT replaced.kafka_topic, replaced.kafka_partition, replaced.kafka_offset
    FROM tallyweir.replaced_row AS replaced
    JOIN tallyweir.standing_from AS standing USING (pipeline)
    WHERE replaced.pipeline = %(pipeline)s
      AND replaced.output_table = %(output_table)s
      AND replaced.sequence >= standing.sequence
    UNION ALL
    SELECT erased.kafka_topic, erased.kafka_partition, erased.kafka_offset
    FROM tallyweir.erased_row AS erased
    JOIN tallyweir.act AS act USING (pipeline, epoch)
    JOIN tallyweir.standing_from AS standing USING (pipeline)
    WHERE erased.pipeline = %(pipeline)s
      AND erased.kept_in = %(output_table)s
      AND act.after_sequence >= standing.sequence
)

-- name: rows_ever
-- Stands for the table of an output at home: its rows, and those that were replaced or
-- erased, which their batches have committed too.
(
    SELECT kafka_topic, kafka_partition, kafka_offset
    FROM {table}
    UNION ALL
    SELECT kafka_topic, kafka_partition, kafka_offset
    FROM {replaced} AS replaced
)

-- name: output_claims
-- What each batch reports for the output, with its checksum, the rows' digests and how
-- often each row may be present. An output with a condition has its own checksum, and
-- need not take every committed event.
SELECT output.sequence, output.events, output.rows,
       coalesce(output.checksum, batch.checksum) AS checksum,
       output.checksum IS NOT NULL AS is_conditional,
       output.digests, batch.watermark_before, batch.guarantee
FROM tallyweir.batch_output AS output
JOIN tallyweir.batch AS batch USING (pipeline, sequence)
JOIN tallyweir.standing_from AS standing USING (pipeline)
WHERE output.pipeline = %(pipeline)s
  AND output.output_table = %(output_table)s
  AND output.sequence >= standing.sequence
ORDER BY output.sequence;

-- name: next_offsets
SELECT topic, partition, next_offset
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s;

-- name: window_rows
-- Rows that each batch staged for the pipeline's window outputs.
SELECT sequence, output_table, rows
FROM tallyweir.batch_output
WHERE pipeline = %(pipeline)s
  AND output_table = ANY (%(windows)s);

-- name: batches_with_former_outputs
-- Batches that wrote to tables which the pipeline no longer writes to.
SELECT DISTINCT sequence
FROM tallyweir.batch_output
WHERE pipeline = %(pipeline)s
  AND output_table <> ALL (%(outputs)s);
