-- Moves positions, and finds what would then be read again.

-- name: positions
SELECT topic, partition, topic_id, next_offset
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s
  AND strpos(topic, ':') = 0
ORDER BY topic, partition;

-- name: in_doubt
SELECT count(*) AS branches
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s
  AND committed_at IS NULL;

-- name: settled
-- What became of the records in a range when they were read. A batch that reaches
-- beyond the range counts whole: the ledger has no finer count of what was committed.
SELECT count(DISTINCT sequence) AS batches,
       count(*) FILTER (
           WHERE from_offset < %(from_offset)s OR until_offset > %(until_offset)s
       ) AS cut,
       coalesce(sum(read), 0)::bigint AS read,
       coalesce(sum(committed), 0)::bigint AS committed
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND topic = %(topic)s
  AND partition = %(partition)s
  AND from_offset < %(until_offset)s
  AND until_offset > %(from_offset)s;

-- name: put_aside
-- Counts each position once, by what became of it when it was last read.
SELECT kind, count(*) AS records
FROM (
    SELECT DISTINCT ON (kafka_offset) kind
    FROM tallyweir.put_aside
    WHERE pipeline = %(pipeline)s
      AND kafka_topic = %(topic)s
      AND kafka_partition = %(partition)s
      AND kafka_offset >= %(from_offset)s
      AND kafka_offset < %(until_offset)s
    ORDER BY kafka_offset, sequence DESC
) AS newest
GROUP BY kind;

-- name: count_rows
SELECT count(*) AS rows
FROM {table}
WHERE kafka_topic = %(topic)s
  AND kafka_partition = %(partition)s
  AND kafka_offset >= %(from_offset)s
  AND kafka_offset < %(until_offset)s;

-- name: unremembered
-- The first batch in a range that made results at least once, or that has no IDs in the
-- catalog.
SELECT batch.sequence, batch.guarantee
FROM tallyweir.batch_partition AS part
JOIN tallyweir.batch AS batch USING (pipeline, sequence)
WHERE part.pipeline = %(pipeline)s
  AND part.topic = %(topic)s
  AND part.partition = %(partition)s
  AND part.from_offset < %(until_offset)s
  AND part.until_offset > %(from_offset)s
  AND part.committed > 0
  AND (
      batch.guarantee <> 'exactly_once'
      OR NOT EXISTS (
          SELECT
          FROM tallyweir.seen_id_run AS run
          WHERE run.pipeline = batch.pipeline
            AND batch.sequence
                BETWEEN coalesce(run.oldest_sequence, run.sequence) AND run.sequence
            AND NOT run.is_hidden
      )
  )
ORDER BY batch.sequence
LIMIT 1;

-- name: note_reset
INSERT INTO tallyweir.offset_reset (
    pipeline, epoch, topic, partition, from_offset, until_offset, after_sequence
)
VALUES (
    %(pipeline)s, %(epoch)s, %(topic)s, %(partition)s, %(stood_at)s, %(target)s,
    %(after_sequence)s
);

-- name: move_position
UPDATE tallyweir.partition_progress
SET next_offset = %(target)s
WHERE pipeline = %(pipeline)s
  AND topic = %(topic)s
  AND partition = %(partition)s
  AND next_offset = %(stood_at)s;
