-- Takes back what batches after a snapshot have brought.

-- name: unrestorable_runs
-- Batch runs that replaced rows and IDs; no snapshot has what they replaced.
SELECT run, disposition
FROM tallyweir.batch_run
WHERE pipeline = %(pipeline)s
  AND sequence > %(sequence)s
  AND disposition <> 'append'
ORDER BY sequence
LIMIT 1;

-- name: acts_since
-- Acts whose changes are in no batch.
SELECT kind, done_at
FROM tallyweir.act
WHERE pipeline = %(pipeline)s
  AND kind IN ('erase', 'switch', 'offsets accept-topic')
  AND epoch > %(epoch)s
ORDER BY epoch
LIMIT 1;

-- name: restores_since
-- Later restores that have taken back batches which the snapshot covers, or a move that
-- it counts as made.
SELECT epoch, snapshot
FROM tallyweir.restore
WHERE pipeline = %(pipeline)s
  AND epoch > %(epoch)s
  AND (
      after_sequence < %(sequence)s
      OR %(move)s > 0
      AND NOT EXISTS (
          SELECT
          FROM tallyweir.accepted_gap AS gap
          WHERE gap.pipeline = %(pipeline)s
            AND gap.move = %(move)s
      )
      AND NOT EXISTS (
          SELECT
          FROM tallyweir.offset_reset AS reset
          WHERE reset.pipeline = %(pipeline)s
            AND reset.move = %(move)s
      )
  )
ORDER BY epoch DESC
LIMIT 1;

-- name: batches_with_branches
SELECT count(*) AS branches
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s
  AND sequence > %(sequence)s;

-- name: definition
SELECT definition
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: stored_positions
SELECT topic, partition, topic_id, next_offset
FROM {copy}
WHERE strpos(topic, ':') = 0;

-- name: taken_events
SELECT count(DISTINCT sequence) AS batches,
       coalesce(sum(read), 0)::bigint AS records,
       coalesce(sum(committed), 0)::bigint AS committed
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND sequence > %(sequence)s;

-- name: delete_appended
-- Deletes rows at positions that batches after the snapshot have read, except rows that
-- a batch before it had made: that batch read the position before it was read again.
WITH bounds AS (
    SELECT topic, partition, min(from_offset) AS since, max(until_offset) AS until
    FROM tallyweir.batch_partition
    WHERE pipeline = %(pipeline)s
      AND sequence > %(sequence)s
    GROUP BY topic, partition
),
kept AS MATERIALIZED (
    SELECT span.topic, span.partition, span.sequence, span.from_offset,
           span.until_offset
    FROM tallyweir.batch_partition AS span
    JOIN bounds USING (topic, partition)
    JOIN tallyweir.standing_from AS standing USING (pipeline)
    WHERE span.pipeline = %(pipeline)s
      AND span.sequence BETWEEN standing.sequence AND %(sequence)s
      AND span.until_offset > bounds.since
)
DELETE FROM {target} AS row
USING bounds
WHERE row.kafka_topic = bounds.topic
  AND row.kafka_partition = bounds.partition
  AND row.kafka_offset >= bounds.since
  AND row.kafka_offset < bounds.until
  AND NOT EXISTS (
      SELECT
      FROM kept
      WHERE kept.topic = row.kafka_topic
        AND kept.partition = row.kafka_partition
        AND row.kafka_offset >= kept.from_offset
        AND row.kafka_offset < kept.until_offset
        AND NOT EXISTS (
            SELECT
            FROM tallyweir.put_aside AS aside
            WHERE aside.pipeline = %(pipeline)s
              AND aside.kafka_topic = row.kafka_topic
              AND aside.kafka_partition = row.kafka_partition
              AND aside.kafka_offset = row.kafka_offset
              AND aside.sequence = kept.sequence
        )
  )

-- name: delete_by_batch
DELETE FROM {target}
WHERE tallyweir_sequence > %(sequence)s

-- name: delete_revisions
DELETE FROM {target}
WHERE revised_in_sequence > %(sequence)s

-- name: delete_unsettled
DELETE FROM {target}
WHERE {unsettled}

-- name: delete_all
DELETE FROM {target}

-- name: delete_of_pipeline
DELETE FROM {target}
WHERE pipeline = %(pipeline)s

-- name: columns
-- The columns of a copy that its table still has and that can be written.
SELECT kept.attname AS name
FROM pg_attribute AS kept
JOIN pg_attribute AS present
    ON present.attrelid = to_regclass(%(target)s)
   AND present.attname = kept.attname
   AND present.attgenerated = ''
   AND NOT present.attisdropped
WHERE kept.attrelid = to_regclass(%(copy)s)
  AND kept.attnum > 0
  AND NOT kept.attisdropped
ORDER BY kept.attnum;

-- name: put_back
INSERT INTO {target} ({columns})
OVERRIDING SYSTEM VALUE
SELECT {columns}
FROM {copy}

-- name: delete_runs
-- Chunks that also hold IDs of earlier batches stay for now.
DELETE FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND NOT is_hidden
  AND coalesce(oldest_sequence, sequence) > %(sequence)s
RETURNING ids

-- name: mixed_chunks
SELECT bucket, sequence, chunk, oldest_sequence, fingerprints, payload_hashes, sequences
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND NOT is_hidden
  AND chunk >= 0
  AND oldest_sequence <= %(sequence)s
  AND sequence > %(sequence)s;

-- name: rewrite_chunk
-- The filter still lets the removed IDs pass, which costs a look-up.
UPDATE tallyweir.seen_id_run
SET ids = %(ids)s,
    first = %(first)s,
    last = %(last)s,
    fingerprints = %(fingerprints)s,
    payload_hashes = %(payload_hashes)s,
    sequences = %(sequences)s
WHERE pipeline = %(pipeline)s
  AND bucket = %(bucket)s
  AND sequence = %(chunk_sequence)s
  AND chunk = %(chunk)s
  AND NOT is_hidden

-- name: delete_chunk
DELETE FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND bucket = %(bucket)s
  AND sequence = %(chunk_sequence)s
  AND chunk = %(chunk)s
  AND NOT is_hidden

-- name: delete_run_inputs
DELETE FROM tallyweir.batch_run_input
USING tallyweir.batch_run AS run
WHERE batch_run_input.pipeline = %(pipeline)s
  AND run.pipeline = batch_run_input.pipeline
  AND run.run = batch_run_input.run
  AND run.sequence > %(sequence)s

-- name: delete_after
DELETE FROM {target}
WHERE pipeline = %(pipeline)s
  AND sequence > %(sequence)s

-- name: delete_moves
DELETE FROM {target}
WHERE pipeline = %(pipeline)s
  AND move > %(move)s

-- name: hold_cursor
-- A relay moves its cursor first and then deletes what it has sent. Taking the locks in
-- the same order avoids a deadlock.
SELECT
FROM tallyweir.relay_cursor
WHERE pipeline = %(pipeline)s
  AND stream = 'outbox'
FOR UPDATE

-- name: messages_published
SELECT coalesce(sum(rows), 0)::bigint AS messages
FROM tallyweir.batch_output
WHERE pipeline = %(pipeline)s
  AND sequence > %(sequence)s
  AND kind = 'outbox';

-- name: forget_cursor
-- Deletes the cursor if the relay has sent no message of the batches that stay.
DELETE FROM tallyweir.relay_cursor
WHERE pipeline = %(pipeline)s
  AND stream = 'outbox'
  AND messages <= %(taken)s

-- name: uncount_sent
UPDATE tallyweir.relay_cursor
SET messages = messages - %(taken)s
WHERE pipeline = %(pipeline)s
  AND stream = 'outbox'

-- name: dead_letters_sent
SELECT count(*) AS letters
FROM tallyweir.dead_letter AS dead
JOIN tallyweir.relay_cursor AS place
    ON place.pipeline = dead.pipeline
   AND place.stream = 'dead_letter'
   AND (dead.sequence, dead.kafka_topic, dead.kafka_partition, dead.kafka_offset)
       <= (place.sequence, place.kafka_topic, place.kafka_partition, place.kafka_offset)
WHERE dead.pipeline = %(pipeline)s
  AND dead.sequence > %(sequence)s;

-- name: set_watermark
-- The sequence of the last batch stays, because sequences are not used again.
UPDATE tallyweir.pipeline
SET watermark = %(watermark)s
WHERE pipeline = %(pipeline)s

-- name: note_restore
INSERT INTO tallyweir.restore (
    pipeline, epoch, snapshot, after_sequence, through_sequence
)
VALUES (
    %(pipeline)s, %(epoch)s, %(snapshot)s, %(sequence)s, %(through_sequence)s
);
