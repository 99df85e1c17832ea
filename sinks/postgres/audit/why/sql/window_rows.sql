-- Finds the row of a window that an event is in.

-- name: batch_ranges
SELECT topic, partition, from_offset, until_offset
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND sequence = %(sequence)s
  AND until_offset > from_offset
  -- Kafka does not have what batch runs have read, or topics that no longer exist.
  AND strpos(topic, ':') = 0
ORDER BY topic, partition;

-- name: rows_at
-- {by} are the columns that identify a group; {same} compares those that the event has.
SELECT window_start, window_end{by}
FROM {table}
WHERE window_start <= %(moment)s
  AND window_end > %(moment)s{same}
ORDER BY window_start
LIMIT 20;
