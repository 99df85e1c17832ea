-- The outbox, compared with the ledger and the relay's cursor.

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
       ) AS sent,
       (
           SELECT count(*)
           FROM tallyweir.erased_row
           WHERE pipeline = %(pipeline)s
             AND starts_with(kept_in, 'outbox:')
       ) AS erased;

-- name: broken_outbox
-- After the cursor's batch, every message of a batch must wait or have been erased.
-- Before it, no message may wait. Within it, the relay may have sent any part.
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
    SELECT sequence, output_table, count(*) AS found
    FROM (
        SELECT sequence, 'outbox:' || topic AS output_table
        FROM tallyweir.outbox
        WHERE pipeline = %(pipeline)s
        UNION ALL
        SELECT part.sequence, erased.kept_in
        FROM tallyweir.erased_row AS erased
        JOIN tallyweir.act AS act USING (pipeline, epoch)
        JOIN tallyweir.batch_partition AS part
            ON part.pipeline = erased.pipeline
           AND part.sequence <= act.after_sequence
           AND part.topic = erased.kafka_topic
           AND part.partition = erased.kafka_partition
           AND erased.kafka_offset >= part.from_offset
           AND erased.kafka_offset < part.until_offset
        CROSS JOIN place
        WHERE erased.pipeline = %(pipeline)s
          AND starts_with(erased.kept_in, 'outbox:')
          -- In a batch before the cursor's no message waits, nor would an erased one.
          AND part.sequence >= place.sent_through
    ) AS message
    GROUP BY sequence, output_table
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
