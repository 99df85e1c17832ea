-- What the snapshot reader reads, while drivers publish and die.

-- name: positions
SELECT partition, next_offset
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s

-- name: visible
SELECT partition, next_offset
FROM tallyweir.visible_offset
WHERE pipeline = %(pipeline)s

-- name: result_rows
-- Counts the rows of each partition from its floor on, below its bound and above.
SELECT bounds.partition,
       count(*) FILTER (WHERE kafka_offset < bounds.until),
       coalesce(sum(kafka_offset) FILTER (WHERE kafka_offset < bounds.until), 0),
       count(*) FILTER (WHERE kafka_offset >= bounds.until)
FROM unnest(
    %(partitions)s::integer[], %(floors)s::bigint[], %(untils)s::bigint[]
) AS bounds (partition, floor, until)
JOIN {table}
    ON kafka_partition = bounds.partition
   AND kafka_offset >= bounds.floor
GROUP BY bounds.partition

-- name: put_aside
-- Counts the same for a table of events that did not become results.
SELECT bounds.partition,
       count(*) FILTER (WHERE kafka_offset < bounds.until),
       coalesce(sum(kafka_offset) FILTER (WHERE kafka_offset < bounds.until), 0),
       count(*) FILTER (WHERE kafka_offset >= bounds.until)
FROM unnest(
    %(partitions)s::integer[], %(floors)s::bigint[], %(untils)s::bigint[]
) AS bounds (partition, floor, until)
JOIN tallyweir.{table}
    ON pipeline = %(pipeline)s
   AND kafka_topic = %(topic)s
   AND kafka_partition = bounds.partition
   AND kafka_offset >= bounds.floor
GROUP BY bounds.partition

-- name: ledger_counts
SELECT bounds.partition, sum(committed), sum(duplicate), sum(dead)
FROM unnest(
    %(partitions)s::integer[], %(floors)s::bigint[], %(untils)s::bigint[]
) AS bounds (partition, floor, until)
JOIN tallyweir.batch_partition AS part
    ON part.pipeline = %(pipeline)s
   AND part.partition = bounds.partition
   AND part.from_offset >= bounds.floor
   AND part.until_offset <= bounds.until
   AND part.until_offset > part.from_offset
GROUP BY bounds.partition

-- name: window_events
SELECT coalesce(sum(events), 0) FROM chaos_totals

-- name: committed_events
SELECT coalesce(sum(committed), 0)
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s

-- name: new_batches
SELECT sequence, epoch, spark_batch_id
FROM tallyweir.batch
WHERE pipeline = %(pipeline)s
  AND sequence > %(after)s
ORDER BY sequence

-- name: records_read
SELECT coalesce(sum(read), 0)
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s

-- name: tables_there
SELECT to_regclass('chaos_events') IS NOT NULL

-- name: index_events
CREATE INDEX IF NOT EXISTS chaos_events_by_place
ON chaos_events (kafka_partition, kafka_offset)

-- name: longest_in_doubt
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - prepared)), 0)::float8
FROM pg_prepared_xacts
WHERE database = current_database()
