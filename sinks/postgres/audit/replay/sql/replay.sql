-- Computes a pipeline once more: reads what its ledger says of each batch, and compares
-- the rows of both sides in a scratch database.
-- {rows} is a table of the scratch database and {table} the table to compare. {key} and
-- {said} are JSON made of its columns.

-- name: recorded_batches
SELECT sequence, epoch, watermark_before, watermark_after, planned_at, lookups,
       run, disposition
FROM tallyweir.batch
LEFT JOIN tallyweir.batch_run USING (pipeline, sequence)
WHERE pipeline = %(pipeline)s
ORDER BY sequence;

-- name: recorded_ranges
SELECT sequence, topic, partition, from_offset, until_offset, read
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
ORDER BY sequence, topic, partition;

-- name: versions
SELECT version, definition_hash, from_sequence
FROM tallyweir.pipeline_version
WHERE pipeline = %(pipeline)s
ORDER BY version;

-- name: run_inputs
SELECT run, partition, name, checksum
FROM tallyweir.batch_run_input
WHERE pipeline = %(pipeline)s
ORDER BY run, partition;

-- name: erasures
-- A batch of an epoch before an erasure was staged without its tombstones.
SELECT epoch, coalesce(detail -> 'rows' ?| ARRAY['keyed_state', 'keyed_timer'], false)
       AS took_keys
FROM tallyweir.act
WHERE pipeline = %(pipeline)s
  AND kind = 'erase'
ORDER BY epoch;

-- name: erased_conditions
-- Rows that were erased by a condition on a table, and not by the event they came from.
SELECT output_table, sum(rows)::bigint AS rows
FROM tallyweir.erased_result
WHERE pipeline = %(pipeline)s
GROUP BY output_table;

-- name: tombstones
SELECT fingerprint, NULL AS kept_in, NULL AS topic, NULL AS partition, NULL AS offset,
       epoch
FROM tallyweir.erased_id
WHERE pipeline = %(pipeline)s
UNION ALL
SELECT NULL, kept_in, kafka_topic, kafka_partition, kafka_offset, epoch
FROM tallyweir.erased_row
WHERE pipeline = %(pipeline)s;

-- name: aside
-- The records cannot tell which copy of an ID lost to another, which rows a table
-- refused, for which rows the catalog had no bucket left, or which schemas a registry
-- did not know; the header of such a payload is the detail.
SELECT sequence, kafka_topic, kafka_partition, kafka_offset, 'lost', ''
FROM tallyweir.duplicate_event
WHERE pipeline = {pipeline}
UNION ALL
SELECT sequence, kafka_topic, kafka_partition, kafka_offset,
       CASE reason
           WHEN 'ID_CONFLICT' THEN 'lost'
           WHEN 'NO_BUCKET_LEFT' THEN 'roomless'
           WHEN 'UNKNOWN_SCHEMA' THEN 'unknown'
           ELSE 'refused'
       END,
       CASE reason
           WHEN 'UNKNOWN_SCHEMA' THEN encode(substring(payload FROM 1 FOR 5), 'hex')
           ELSE detail
       END
FROM tallyweir.dead_letter
WHERE pipeline = {pipeline}
  AND reason IN (
      'ID_CONFLICT', 'NO_BUCKET_LEFT', 'REJECTED_BY_POSTGRES', 'UNKNOWN_SCHEMA'
  )

-- name: newest_markers
SELECT coalesce(max(sequence), 0) AS sequence
FROM tallyweir_participant.marker
WHERE installation = %(installation)s
  AND pipeline_number = %(number)s;

-- name: unresolved
SELECT count(*) AS branches
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s
  AND committed_at IS NULL;

-- name: sent_messages
SELECT coalesce(sum(messages), 0)::bigint AS sent
FROM tallyweir.relay_cursor
WHERE pipeline = %(pipeline)s
  AND stream = 'outbox';

-- name: create_compared
CREATE SCHEMA tallyweir_replay;
CREATE UNLOGGED TABLE tallyweir_replay.compared (
    part integer NOT NULL,
    is_replayed boolean NOT NULL,
    key text COLLATE "C" NOT NULL,
    said text NOT NULL
);
CREATE UNLOGGED TABLE tallyweir_replay.aside (
    sequence bigint NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    kind text NOT NULL,
    detail text NOT NULL
);
CREATE INDEX ON tallyweir_replay.aside (sequence);

-- name: read_part
SELECT {part}, {is_replayed}, {key}::text, {said}::text
FROM {table} AS kept
WHERE {bound}

-- name: copy_out
COPY ({query}) TO STDOUT

-- name: copy_compared
COPY tallyweir_replay.compared (part, is_replayed, key, said) FROM STDIN

-- name: insert_compared
-- For rows that are in the scratch database already.
INSERT INTO tallyweir_replay.compared (part, is_replayed, key, said)
{query}

-- name: copy_aside
COPY tallyweir_replay.aside (sequence, topic, partition, "offset", kind, detail)
FROM STDIN

-- name: aside_of
SELECT topic, partition, "offset", kind, detail
FROM tallyweir_replay.aside
WHERE sequence = %(sequence)s
ORDER BY topic, partition, "offset";

-- name: of_pipeline
kept.pipeline = {pipeline}

-- name: since
kept.pipeline = {pipeline} AND kept.sequence > {sequence}

-- name: written_since
kept.{column} > {sequence}

-- name: unsettled_since
-- Leaves out final rows whose window ended long before; no replayed batch changed them.
(NOT kept.final OR kept.window_end + {lateness}::interval > {watermark}::timestamptz)

-- name: not_erased
(kept.kafka_topic, kept.kafka_partition, kept.kafka_offset) NOT IN (
    SELECT kafka_topic, kafka_partition, kafka_offset
    FROM tallyweir.erased_row
    WHERE pipeline = {pipeline}
)

-- name: read_by_replayed
-- Rows of records that replayed batches read; the table may have other writers.
EXISTS (
    SELECT
    FROM unnest({topics}::text[], {partitions}::integer[], {begins}::bigint[],
                {ends}::bigint[]) AS read (topic, partition, from_offset, until_offset)
    WHERE read.topic = kept.kafka_topic
      AND read.partition = kept.kafka_partition
      AND kept.kafka_offset >= read.from_offset
      AND kept.kafka_offset < read.until_offset
)

-- name: index_compared
CREATE INDEX compared_by_part ON tallyweir_replay.compared (part, key);
ANALYZE tallyweir_replay.compared;

-- name: differing
-- Rows with the same key are paired in the order of their values.
WITH committed AS (
    SELECT key, said, row_number() OVER (PARTITION BY key ORDER BY said) AS number
    FROM ({committed}) AS kept
),
replayed AS (
    SELECT key, said, row_number() OVER (PARTITION BY key ORDER BY said) AS number
    FROM ({replayed}) AS kept
)
SELECT key, committed.said AS committed, replayed.said AS replayed
FROM committed
FULL JOIN replayed USING (key, number)
WHERE committed.said IS DISTINCT FROM replayed.said
ORDER BY key, number

-- name: count_side
SELECT count(*) AS rows FROM ({side}) AS kept

-- name: side
SELECT {once} key, said
FROM tallyweir_replay.compared
WHERE part = {part} AND is_replayed = {is_replayed}

-- name: take_key
-- Takes the home's secret, under which IDs are filed and tombstones are written.
UPDATE tallyweir.installation SET fingerprint_key = %(key)s;

-- name: set_position
INSERT INTO tallyweir.partition_progress AS progress (
    pipeline, topic, partition, topic_id, next_offset
)
VALUES (%(pipeline)s, %(topic)s, %(partition)s, %(topic_id)s, %(next_offset)s)
ON CONFLICT (pipeline, topic, partition) DO UPDATE
SET next_offset = EXCLUDED.next_offset;

-- name: set_progress
UPDATE tallyweir.pipeline
SET last_sequence = %(sequence)s,
    watermark = %(watermark)s
WHERE pipeline = %(pipeline)s;

-- name: entomb_id
INSERT INTO tallyweir.erased_id (pipeline, fingerprint, epoch)
VALUES (%(pipeline)s, %(fingerprint)s, %(epoch)s)
ON CONFLICT DO NOTHING;

-- name: entomb_position
INSERT INTO tallyweir.erased_row (
    pipeline, kept_in, kafka_topic, kafka_partition, kafka_offset, epoch
)
VALUES (%(pipeline)s, %(kept_in)s, %(topic)s, %(partition)s, %(offset)s, %(epoch)s)
ON CONFLICT DO NOTHING;

-- name: identity
SELECT pipeline_number, installation_id
FROM tallyweir.pipeline
CROSS JOIN tallyweir.installation
WHERE pipeline = %(pipeline)s;
