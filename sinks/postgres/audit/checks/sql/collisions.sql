-- Kafka positions that rows take, to find those that are taken twice.

-- name: doubled_positions
-- Kafka records that became two rows of one table.
SELECT kafka_topic AS topic, kafka_partition AS partition, kafka_offset,
       count(*) AS rows
FROM {table}
WHERE kafka_topic = ANY (%(read_topics)s)
GROUP BY kafka_topic, kafka_partition, kafka_offset
HAVING count(*) > 1
ORDER BY kafka_topic, kafka_partition, kafka_offset;

-- name: taken_positions
-- Each row covers 64 successive offsets, with one bit for each taken one. Ordered by
-- bytes, as the Python code that merges several databases compares topics.
SELECT kafka_topic COLLATE "C" AS topic, kafka_partition AS partition,
       kafka_offset >> 6 AS block,
       bit_or(1::bigint << (kafka_offset & 63)::integer) AS taken
FROM {table}
WHERE kafka_topic = ANY (%(read_topics)s)
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3;

-- name: replaced_positions
SELECT kafka_topic COLLATE "C" AS topic, kafka_partition AS partition,
       kafka_offset >> 6 AS block,
       bit_or(1::bigint << (kafka_offset & 63)::integer) AS taken
FROM tallyweir.replaced_row
WHERE pipeline = %(pipeline)s
  AND output_table = %(output_table)s
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3;

-- name: erased_positions
SELECT kafka_topic COLLATE "C" AS topic, kafka_partition AS partition,
       kafka_offset >> 6 AS block,
       bit_or(1::bigint << (kafka_offset & 63)::integer) AS taken
FROM tallyweir.erased_row
WHERE pipeline = %(pipeline)s
  AND kept_in IN (%(output_table)s, '')
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3;

-- name: positions_put_aside
-- Leaves out positions that a later reading has made a result of.
SELECT kafka_topic COLLATE "C" AS topic, kafka_partition AS partition,
       kafka_offset >> 6 AS block,
       bit_or(1::bigint << (kafka_offset & 63)::integer) AS taken
FROM tallyweir.no_result
WHERE pipeline = %(pipeline)s
  AND kind = %(kind)s
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3;
