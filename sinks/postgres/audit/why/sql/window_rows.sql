-- Which row of a window an event is in.

-- name: batch_ranges
SELECT topic, partition, from_offset, until_offset
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND sequence = %(sequence)s
  AND until_offset > from_offset
  -- What a batch run has read, or a topic that is no more, is not in Kafka.
  AND strpos(topic, ':') = 0
ORDER BY topic, partition;

-- name: rows_at
-- {by} tells groups apart, {same} says which of it the event has.
SELECT window_start, window_end{by}
FROM {table}
WHERE window_start <= %(moment)s
  AND window_end > %(moment)s{same}
ORDER BY window_start
LIMIT 20;
