-- The outbox held against the ledger and the relay's cursor.

-- name: outbox_size
SELECT (
           SELECT coalesce(sum(rows), 0)::bigint
           FROM tallyweir.batch_output
           WHERE pipeline = %(pipeline)s
             AND kind = 'outbox'
       ) AS published,
       (
           SELECT count(*)
           FROM tallyweir.outbox
           WHERE pipeline = %(pipeline)s
       ) AS waiting,
       (
           SELECT coalesce(sum(messages), 0)::bigint
           FROM tallyweir.relay_cursor
           WHERE pipeline = %(pipeline)s
             AND stream = 'outbox'
       ) AS sent;

-- name: broken_outbox
-- Behind the cursor's batch all of a batch waits, before it nothing; the relay may
-- stand in the middle of the cursor's own.
WITH place AS (
    SELECT coalesce(max(sequence), 0) AS sent_through
    FROM tallyweir.relay_cursor
    WHERE pipeline = %(pipeline)s
      AND stream = 'outbox'
),
claimed AS (
    SELECT output.sequence, output.output_table, output.rows,
           -- An output with a condition need not take every committed event.
           CASE WHEN output.checksum IS NULL THEN sum(committed)
                ELSE output.events END AS events
    FROM tallyweir.batch_output AS output
    JOIN tallyweir.batch_partition AS part USING (pipeline, sequence)
    WHERE output.pipeline = %(pipeline)s
      AND output.kind = 'outbox'
    GROUP BY output.sequence, output.output_table, output.rows, output.events,
             output.checksum
),
waiting AS (
    SELECT sequence, 'outbox:' || topic AS output_table, count(*) AS found
    FROM tallyweir.outbox
    WHERE pipeline = %(pipeline)s
    GROUP BY sequence, topic
)
SELECT sequence, output_table,
       coalesce(rows, 0) AS rows,
       coalesce(events, 0)::bigint AS events,
       coalesce(found, 0) AS found
FROM claimed
FULL JOIN waiting USING (sequence, output_table)
CROSS JOIN place
WHERE rows IS DISTINCT FROM events
   OR coalesce(found, 0) > coalesce(rows, 0)
   OR (sequence > sent_through AND coalesce(found, 0) <> rows)
   OR (sequence < sent_through AND found > 0)
ORDER BY sequence, output_table;
