-- What result tables show, held against the state of windows and the ledger's digests.

-- name: versions
SELECT version, layout, held, from_sequence
FROM tallyweir.pipeline_version
WHERE pipeline = %(pipeline)s
  AND layout IS NOT NULL
ORDER BY version;

-- name: claimed_digests
SELECT output.sequence, output.digests, batch.watermark_before
FROM tallyweir.batch_output AS output
JOIN tallyweir.batch AS batch USING (pipeline, sequence)
JOIN tallyweir.standing_from AS standing USING (pipeline)
WHERE output.pipeline = %(pipeline)s
  AND output.output_table = %(output_table)s
  AND output.sequence >= standing.sequence
ORDER BY output.sequence;

-- name: present_columns
SELECT attname::text AS name
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
  AND NOT attisdropped;

-- name: digests_by_batch
SELECT {sequence} AS sequence, count(*) AS rows, sum({hash}) AS sum
FROM {table}
WHERE {sequence} IS NULL OR {sequence} >= %(first)s
GROUP BY {sequence};

-- name: settled_windows
-- But for those that were settled before digests were kept.
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
-- Rows that may still change, each against its state. One whose state has events that
-- wait to be shown is older than it.
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
