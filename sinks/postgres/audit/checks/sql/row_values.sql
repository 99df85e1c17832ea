-- Result tables, compared with the state of windows and the ledger's digests.

-- name: versions
SELECT version, layout, held, from_sequence
FROM tallyweir.pipeline_version
WHERE pipeline = %(pipeline)s
  AND layout IS NOT NULL
ORDER BY version;

-- name: digests_by_batch
SELECT {sequence} AS sequence, count(*) AS rows, sum({hash}) AS sum
FROM {table}
WHERE {sequence} IS NULL OR {sequence} >= %(first)s
GROUP BY {sequence};

-- name: waiting_messages
-- Only batches of which no message was sent yet.
SELECT sequence, count(*) AS rows, sum({hash}) AS sum
FROM tallyweir.outbox
WHERE pipeline = %(pipeline)s
  AND topic = %(topic)s
  AND sequence >= %(first)s
  AND sequence > %(sent_through)s
GROUP BY sequence;

-- name: sent_through
SELECT coalesce(max(sequence), 0) AS sequence
FROM tallyweir.relay_cursor
WHERE pipeline = %(pipeline)s
  AND stream = 'outbox';

-- name: settled_windows
-- "former" counts windows that were settled before digests were kept.
SELECT count(*) FILTER (WHERE is_kept) AS rows,
       coalesce(sum(hash) FILTER (WHERE is_kept), 0) AS sum,
       count(*) FILTER (WHERE NOT is_kept) AS former
FROM (
    SELECT {hash} AS hash,
           (%(settled_through)s::timestamptz IS NULL
            OR window_end + %(lateness)s::interval > %(settled_through)s)
           AND (%(closed_through)s::timestamptz IS NULL
                OR window_end > %(closed_through)s) AS is_kept
    FROM {table}
    WHERE final
) AS settled;

-- name: open_windows
-- Rows that may still change, each compared with its state. If the state has events
-- that wait to be shown, the row is older than its state.
WITH owed AS (
    SELECT {place} AS place, {owed} AS said, {waits} AS waits
    FROM {state}
),
held AS (
    SELECT {place} AS place, {held} AS said
    FROM {table}
    WHERE final IS NOT TRUE
),
compared AS (
    SELECT place, owed.said AS owed, held.said AS held, coalesce(waits, false) AS waits
    FROM owed
    FULL JOIN held USING (place)
),
judged AS (
    SELECT place, owed, held, waits,
           owed IS NULL OR NOT waits AND held IS DISTINCT FROM owed AS differs
    FROM compared
)
SELECT count(held) FILTER (WHERE NOT waits) AS rows,
       count(*) FILTER (WHERE waits) AS waiting,
       count(*) FILTER (WHERE differs) AS differing,
       coalesce(
           (
               SELECT json_agg(shown)
               FROM (
                   SELECT place, owed, held
                   FROM judged
                   WHERE differs
                   ORDER BY place
                   LIMIT %(shown)s
               ) AS shown
           ),
           '[]'
       ) AS examples
FROM judged;

-- name: writers_at_home
-- One transaction writes a batch's rows in several tables of the ledger, unless a dump
-- was loaded table by table.
SELECT batch.xmin::text AS transaction, batch.sequence,
       bool_and(part.xmin = batch.xmin) AS is_dated
FROM tallyweir.batch AS batch
JOIN tallyweir.batch_partition AS part USING (pipeline, sequence)
WHERE batch.pipeline = %(pipeline)s
GROUP BY batch.sequence, batch.xmin
UNION ALL
SELECT xmin::text, 0, true
FROM tallyweir.act
WHERE pipeline = %(pipeline)s;

-- name: writers_of_branches
-- Markers that share one transaction were loaded from a dump.
SELECT xmin::text AS transaction, sequence,
       count(*) OVER (PARTITION BY xmin::text) = 1 AS is_dated
FROM tallyweir_participant.marker
WHERE installation = %(installation)s
  AND pipeline_number = %(pipeline_number)s;

-- name: definition_writers
-- A subquery in place of a table: the transactions that have changed the table's
-- definition, and may have rewritten every row for it.
(
    SELECT xmin
    FROM pg_class
    WHERE oid = to_regclass({name})
    UNION
    SELECT xmin
    FROM pg_attribute
    WHERE attrelid = to_regclass({name})
)

-- name: rows_there
SELECT count(*) AS rows,
       count(*) FILTER (
           WHERE xmin IN (SELECT by.xmin FROM {definition_writers} AS by)
       ) AS redefined
FROM {table};

-- name: rows_of_strangers
-- A subquery in place of a table: its rows that no batch and no act has written.
(
    SELECT kafka_topic, kafka_partition, kafka_offset
    FROM {table} AS kept
    WHERE NOT EXISTS (
        SELECT
        FROM unnest(%(writers)s::text[]) AS writer (transaction)
        WHERE writer.transaction::xid = kept.xmin
    )
      AND kept.xmin NOT IN (SELECT by.xmin FROM {definition_writers} AS by)
)
