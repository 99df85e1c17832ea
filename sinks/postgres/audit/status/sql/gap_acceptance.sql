-- Accepts that Kafka deleted records before they were read.

-- name: lock_pipeline
-- Waits for a publish that is under way, and orders this transaction with all of them.
SELECT last_sequence
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s
FOR UPDATE;

-- name: begin_settings
-- Publishing waits for this transaction, so it ends by itself if its caller is gone.
SELECT set_config('lock_timeout', %(timeout)s, true),
       set_config('idle_in_transaction_session_timeout', '60s', true);

-- name: stored_positions
SELECT topic, partition, topic_id, next_offset, event_time_max
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s
  AND strpos(topic, ':') = 0
ORDER BY topic, partition;

-- name: record_gap
INSERT INTO tallyweir.accepted_gap
    (pipeline, topic, partition, from_offset, until_offset, after_sequence, reason)
VALUES
    (%(pipeline)s, %(topic)s, %(partition)s, %(from_offset)s, %(until_offset)s,
     %(after_sequence)s, %(reason)s);

-- name: advance_position
-- A partition that was added to the topic after the last batch has no row yet.
INSERT INTO tallyweir.partition_progress AS progress
    (pipeline, topic, partition, topic_id, next_offset)
VALUES
    (%(pipeline)s, %(topic)s, %(partition)s, %(topic_id)s, %(until_offset)s)
ON CONFLICT (pipeline, topic, partition) DO UPDATE
SET next_offset = EXCLUDED.next_offset
WHERE progress.next_offset = %(from_offset)s;
