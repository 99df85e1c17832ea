-- What became of the records in some ranges of positions. The ranges are half-open, and
-- are passed as four arrays. psycopg quotes {table}, {start} and {columns}; {columns}
-- lists all columns of a table.

-- name: put_aside
-- Returns one row for each output that an event was too late for.
WITH wanted AS (
    SELECT topic, partition, from_offset, until_offset
    FROM unnest(
        %(topics)s::text[], %(partitions)s::integer[],
        %(from_offsets)s::bigint[], %(until_offsets)s::bigint[]
    ) AS given (topic, partition, from_offset, until_offset)
),
aside AS (
    SELECT pipeline, kafka_topic, kafka_partition, kafka_offset, sequence,
           'dead' AS outcome, reason || ': ' || detail AS why
    FROM tallyweir.dead_letter
    UNION ALL
    SELECT pipeline, kafka_topic, kafka_partition, kafka_offset, sequence,
           'duplicate', 'its ID was seen before'
    FROM tallyweir.duplicate_event
    UNION ALL
    SELECT pipeline, kafka_topic, kafka_partition, kafka_offset, sequence,
           'expired', 'older than the IDs that are remembered'
    FROM tallyweir.expired_event
    UNION ALL
    SELECT pipeline, kafka_topic, kafka_partition, kafka_offset, sequence,
           'filtered', 'not true of it: ' || condition
    FROM tallyweir.filtered_event
    UNION ALL
    SELECT pipeline, kafka_topic, kafka_partition, kafka_offset, sequence,
           'late', 'its window in ' || output_table || ' took no more'
    FROM tallyweir.late_event
)
SELECT topic, partition, kafka_offset AS "offset", sequence, outcome, why
FROM wanted
JOIN aside
    ON kafka_topic = topic
   AND kafka_partition = partition
   AND kafka_offset >= from_offset
   AND kafka_offset < until_offset
WHERE pipeline = %(pipeline)s
ORDER BY topic, partition, "offset", why;

-- name: published_ranges
SELECT published.topic, published.partition, published.from_offset,
       published.until_offset, published.sequence
FROM unnest(
    %(topics)s::text[], %(partitions)s::integer[],
    %(from_offsets)s::bigint[], %(until_offsets)s::bigint[]
) AS given (topic, partition, from_offset, until_offset)
JOIN tallyweir.batch_partition AS published
    ON published.topic = given.topic
   AND published.partition = given.partition
   AND published.from_offset < given.until_offset
   AND published.until_offset > given.from_offset
WHERE published.pipeline = %(pipeline)s
ORDER BY published.topic, published.partition, published.from_offset;

-- name: read_outside
-- Records that the pipeline has read outside the ranges. A batch's range that is only
-- partly inside counts whole, so the result is 0 only if the pipeline read no others.
SELECT coalesce(sum(read), 0)::bigint AS records
FROM tallyweir.batch_partition AS published
WHERE pipeline = %(pipeline)s
  AND NOT EXISTS (
      SELECT
      FROM unnest(
          %(topics)s::text[], %(partitions)s::integer[],
          %(from_offsets)s::bigint[], %(until_offsets)s::bigint[]
      ) AS given (topic, partition, from_offset, until_offset)
      WHERE published.topic = given.topic
        AND published.partition = given.partition
        AND published.from_offset >= given.from_offset
        AND published.until_offset <= given.until_offset
  );

-- name: rows
SELECT {columns}
FROM {table} AS written
JOIN unnest(
    %(topics)s::text[], %(partitions)s::integer[],
    %(from_offsets)s::bigint[], %(until_offsets)s::bigint[]
) AS given (topic, partition, from_offset, until_offset)
    ON written.kafka_topic = given.topic
   AND written.kafka_partition = given.partition
   AND written.kafka_offset >= given.from_offset
   AND written.kafka_offset < given.until_offset
ORDER BY written.kafka_topic, written.kafka_partition, written.kafka_offset;

-- name: windows
SELECT {columns}
FROM {table} AS written
WHERE {start} >= %(first)s
  AND {start} <= %(last)s;

-- name: all_rows
SELECT {columns}
FROM {table} AS written;

-- name: outbox
SELECT topic, key, value, event_id, kafka_topic, kafka_partition, kafka_offset
FROM tallyweir.outbox
WHERE pipeline = %(pipeline)s
ORDER BY kafka_topic, kafka_partition, kafka_offset, topic;

-- name: counts
SELECT topic, partition, read, committed, duplicate, dead, late, expired, filtered
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND read > 0
ORDER BY topic, partition;

-- name: definition_hash
SELECT definition_hash
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;
