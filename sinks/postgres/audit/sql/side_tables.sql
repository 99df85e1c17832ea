-- Rows of events that did not become results, compared with the ledger's counts.

-- name: broken_side_table
-- {table} holds the events, {count} is the ledger's column for them.
WITH found AS (
    SELECT sequence, kafka_topic AS topic, kafka_partition AS partition,
           count(*) AS events,
           min(kafka_offset) AS lowest,
           max(kafka_offset) AS highest
    FROM tallyweir.{table}
    WHERE pipeline = %(pipeline)s
    GROUP BY sequence, kafka_topic, kafka_partition
),
claimed AS (
    SELECT sequence, topic, partition, {count} AS events, from_offset, until_offset
    FROM tallyweir.batch_partition
    WHERE pipeline = %(pipeline)s
)
SELECT sequence, topic, partition,
       coalesce(claimed.events, 0) AS claimed,
       coalesce(found.events, 0) AS found,
       coalesce(lowest < from_offset OR highest >= until_offset, false) AS outside
FROM claimed
FULL JOIN found USING (sequence, topic, partition)
WHERE coalesce(claimed.events, 0) <> coalesce(found.events, 0)
   OR lowest < from_offset
   OR highest >= until_offset
ORDER BY sequence, topic, partition;

-- name: broken_late_events
-- Counts per output, because an event may be late for one output and in time for
-- another. An output keeps late events or not by the definition that the batch was
-- published under.
WITH found AS (
    SELECT sequence, output_table, count(*) AS events
    FROM tallyweir.late_event
    WHERE pipeline = %(pipeline)s
    GROUP BY sequence, output_table
),
claimed AS (
    SELECT sequence, output_table,
           CASE WHEN coalesce(late_kept, output_table <> ALL (%(dropping)s))
                THEN late
                ELSE 0
           END AS events
    FROM tallyweir.batch_output
    WHERE pipeline = %(pipeline)s
)
SELECT sequence, output_table,
       coalesce(claimed.events, 0) AS claimed,
       coalesce(found.events, 0) AS found
FROM claimed
FULL JOIN found USING (sequence, output_table)
WHERE coalesce(claimed.events, 0) <> coalesce(found.events, 0)
ORDER BY sequence, output_table;

-- name: side_table_rows
SELECT (SELECT count(*) FROM tallyweir.dead_letter
        WHERE pipeline = %(pipeline)s)
     + (SELECT count(*) FROM tallyweir.late_event
        WHERE pipeline = %(pipeline)s)
     + (SELECT count(*) FROM tallyweir.expired_event
        WHERE pipeline = %(pipeline)s)
     + (SELECT count(*) FROM tallyweir.duplicate_event
        WHERE pipeline = %(pipeline)s)
     + (SELECT count(*) FROM tallyweir.filtered_event
        WHERE pipeline = %(pipeline)s) AS rows;
