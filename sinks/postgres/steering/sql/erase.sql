-- Erases a person's events from a pipeline, in one transaction.
-- {table} is an output's table and {event_id} its column of IDs as text. Positions are
-- passed as three arrays.

-- name: positions_where
SELECT kafka_topic, kafka_partition, kafka_offset
FROM {table}
WHERE kafka_topic = ANY (%(read_topics)s)
  AND ({condition});

-- name: positions_of_ids
SELECT kafka_topic, kafka_partition, kafka_offset
FROM {table}
WHERE {event_id} = ANY (%(ids)s)
  AND kafka_topic = ANY (%(read_topics)s);

-- name: ids_at_positions
SELECT DISTINCT {event_id} AS event_id
FROM {table}
JOIN unnest(%(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[])
    AS erased (kafka_topic, kafka_partition, kafka_offset)
    USING (kafka_topic, kafka_partition, kafka_offset)
WHERE {event_id} IS NOT NULL;

-- name: aside_positions
SELECT kafka_topic, kafka_partition, kafka_offset
FROM tallyweir.{table}
WHERE pipeline = %(pipeline)s
  AND event_id = ANY (%(ids)s);

-- name: aside_ids
SELECT DISTINCT event_id
FROM tallyweir.{table}
JOIN unnest(%(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[])
    AS erased (kafka_topic, kafka_partition, kafka_offset)
    USING (kafka_topic, kafka_partition, kafka_offset)
WHERE pipeline = %(pipeline)s
  AND event_id IS NOT NULL;

-- name: erase_rows
WITH gone AS (
    DELETE FROM {table} AS kept
    USING unnest(%(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[])
        AS erased (kafka_topic, kafka_partition, kafka_offset)
    WHERE (kept.kafka_topic, kept.kafka_partition, kept.kafka_offset)
        = (erased.kafka_topic, erased.kafka_partition, erased.kafka_offset)
    RETURNING kept.kafka_topic, kept.kafka_partition, kept.kafka_offset
),
noted AS (
    INSERT INTO tallyweir.erased_row (
        pipeline, kept_in, kafka_topic, kafka_partition, kafka_offset, epoch
    )
    SELECT DISTINCT %(pipeline)s, %(kept_in)s, kafka_topic, kafka_partition,
           kafka_offset, %(epoch)s::bigint
    FROM gone
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS rows FROM gone;

-- name: erase_messages
WITH gone AS (
    DELETE FROM tallyweir.outbox AS kept
    USING unnest(%(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[])
        AS erased (kafka_topic, kafka_partition, kafka_offset)
    WHERE kept.pipeline = %(pipeline)s
      AND (kept.kafka_topic, kept.kafka_partition, kept.kafka_offset)
        = (erased.kafka_topic, erased.kafka_partition, erased.kafka_offset)
    RETURNING kept.topic, kept.kafka_topic, kept.kafka_partition, kept.kafka_offset,
              kept.sequence, {hash} AS hash
),
forgotten AS (
    UPDATE tallyweir.batch_output AS output
    SET digests = jsonb_set(digests, '{{results}}', jsonb_build_object(
        'rows', (digests #>> '{{results,rows}}')::bigint - erased.rows,
        'sum', (digests #>> '{{results,sum}}')::numeric - erased.sum
    ))
    FROM (
        SELECT 'outbox:' || topic AS output_table, sequence, count(*) AS rows,
               sum(hash) AS sum
        FROM gone
        GROUP BY topic, sequence
    ) AS erased
    WHERE output.pipeline = %(pipeline)s
      AND output.output_table = erased.output_table
      AND output.sequence = erased.sequence
      AND digests #>> '{{results,sum}}' IS NOT NULL
),
noted AS (
    INSERT INTO tallyweir.erased_row (
        pipeline, kept_in, kafka_topic, kafka_partition, kafka_offset, epoch
    )
    SELECT %(pipeline)s, 'outbox:' || topic, kafka_topic, kafka_partition,
           kafka_offset, %(epoch)s::bigint
    FROM gone
)
SELECT count(*) AS rows FROM gone;

-- name: blank_aside
-- The row stays, because the ledger counts it; its contents do not.
WITH blanked AS (
    UPDATE tallyweir.{table} AS kept
    SET {blank}
    FROM unnest(%(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[])
        AS erased (kafka_topic, kafka_partition, kafka_offset)
    WHERE kept.pipeline = %(pipeline)s
      AND (kept.kafka_topic, kept.kafka_partition, kept.kafka_offset)
        = (erased.kafka_topic, erased.kafka_partition, erased.kafka_offset)
      AND {said}
    RETURNING kept.kafka_topic, kept.kafka_partition, kept.kafka_offset
),
noted AS (
    INSERT INTO tallyweir.erased_row (
        pipeline, kept_in, kafka_topic, kafka_partition, kafka_offset, epoch
    )
    SELECT DISTINCT %(pipeline)s, %(kept_in)s, kafka_topic, kafka_partition,
           kafka_offset, %(epoch)s::bigint
    FROM blanked
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS rows FROM blanked;

-- name: erase_results
WITH gone AS (
    DELETE FROM {table}
    WHERE {condition}
    RETURNING tallyweir_sequence, {hash} AS hash
),
noted AS (
    INSERT INTO tallyweir.erased_result (pipeline, output_table, sequence, epoch, rows)
    SELECT %(pipeline)s, %(kept_in)s, tallyweir_sequence, %(epoch)s::bigint, count(*)
    FROM gone
    GROUP BY tallyweir_sequence
),
forgotten AS (
    -- A hash that stayed would confirm the row to anyone who knows it.
    UPDATE tallyweir.batch_output AS output
    SET digests = jsonb_set(digests, '{{results}}', jsonb_build_object(
        'rows', (digests #>> '{{results,rows}}')::bigint - erased.rows,
        'sum', (digests #>> '{{results,sum}}')::numeric - erased.sum
    ))
    FROM (
        SELECT tallyweir_sequence, count(*) AS rows, sum(hash) AS sum
        FROM gone
        GROUP BY tallyweir_sequence
    ) AS erased
    WHERE output.pipeline = %(pipeline)s
      AND output.output_table = %(kept_in)s
      AND output.sequence = erased.tallyweir_sequence
      AND digests #>> '{{results,sum}}' IS NOT NULL
)
SELECT count(*) AS rows FROM gone;

-- name: erase_key
DELETE FROM tallyweir.{table}
WHERE pipeline = %(pipeline)s
  AND key = ANY (%(keys)s);

-- name: entomb_ids
INSERT INTO tallyweir.erased_id (pipeline, fingerprint, epoch)
SELECT %(pipeline)s, fingerprint, %(epoch)s::bigint
FROM unnest(%(fingerprints)s::bytea[]) AS entombed (fingerprint)
ON CONFLICT DO NOTHING;

-- name: entomb_positions
-- Includes positions that are in no table any more, because a backup may have them.
INSERT INTO tallyweir.erased_row (
    pipeline, kept_in, kafka_topic, kafka_partition, kafka_offset, epoch
)
SELECT %(pipeline)s, '', kafka_topic, kafka_partition, kafka_offset, %(epoch)s::bigint
FROM unnest(%(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[])
    AS erased (kafka_topic, kafka_partition, kafka_offset)
WHERE NOT EXISTS (
    SELECT
    FROM tallyweir.erased_row AS noted
    WHERE noted.pipeline = %(pipeline)s
      AND (noted.kafka_topic, noted.kafka_partition, noted.kafka_offset)
        = (erased.kafka_topic, erased.kafka_partition, erased.kafka_offset)
);

-- name: unresolved_branches
SELECT count(*) AS branches
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s
  AND committed_at IS NULL;

-- name: read_topics
SELECT coalesce(array_agg(DISTINCT topic), '{}') AS topics
FROM tallyweir.partition_progress
WHERE pipeline = %(pipeline)s;

-- name: forget_hot_keys
-- The names of fields as well: a document may have names of persons for them.
UPDATE tallyweir.batch_measures
SET measures = measures - ARRAY['hot_keys', 'unnamed']
WHERE pipeline = %(pipeline)s
  AND measures ?| ARRAY['hot_keys', 'unnamed'];

-- name: forget_samples
DELETE FROM tallyweir.sample
WHERE pipeline = %(pipeline)s;

-- name: fingerprint_key
SELECT fingerprint_key
FROM tallyweir.installation;

-- name: erasures
SELECT act.epoch, act.reason, act.done_by, act.done_at, act.detail
FROM tallyweir.act AS act
WHERE act.pipeline = %(pipeline)s
  AND act.kind = 'erase'
ORDER BY act.epoch;

-- name: tombstones
SELECT (
           SELECT coalesce(array_agg(encode(fingerprint, 'hex') ORDER BY fingerprint), '{}')
           FROM tallyweir.erased_id
           WHERE pipeline = %(pipeline)s
       ) AS fingerprints,
       (
           SELECT coalesce(json_agg(json_build_array(
               kafka_topic, kafka_partition, kafka_offset
           )), '[]')
           FROM (
               SELECT DISTINCT kafka_topic, kafka_partition, kafka_offset
               FROM tallyweir.erased_row
               WHERE pipeline = %(pipeline)s
               ORDER BY 1, 2, 3
           ) AS erased
       ) AS positions;
