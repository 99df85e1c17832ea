-- Whether readers see everything of a partition up to an offset.

-- name: visible_offset
-- A batch that some database has not committed yet may have the offset, or one before.
SELECT progress.next_offset,
       EXISTS (
           SELECT
           FROM tallyweir.batch_branch AS branch
           JOIN tallyweir.batch_partition AS covered USING (pipeline, sequence)
           WHERE branch.pipeline = progress.pipeline
             AND branch.committed_at IS NULL
             AND covered.topic = progress.topic
             AND covered.partition = progress.partition
             AND covered.from_offset <= %(offset)s
       ) AS in_doubt
FROM tallyweir.partition_progress AS progress
WHERE progress.pipeline = %(pipeline)s
  AND progress.topic = %(topic)s
  AND progress.partition = %(partition)s;
