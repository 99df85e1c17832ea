-- Discards a pipeline that works in the shadow, with all that is its own.

-- name: hold_pipeline
-- Waits for transactions that publish, claim or register it; later ones find no row.
SELECT
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s
FOR UPDATE;

-- name: hold_claims
-- The same for transactions that write something that refers only to a claim.
SELECT
FROM tallyweir.epoch_claim
WHERE pipeline = %(pipeline)s
FOR UPDATE;

-- name: prepared
SELECT count(*) AS branches
FROM pg_prepared_xacts
WHERE starts_with(gid, %(prefix)s);

-- name: state_tables
SELECT relname AS name
FROM pg_class
WHERE relnamespace = 'tallyweir_state'::regnamespace
  AND relkind = 'r'
  AND relname ~ %(pattern)s
ORDER BY relname;

-- name: present
-- Only tables that hold_tables has locked: any other may belong to someone else by now.
SELECT name
FROM unnest(%(tables)s::text[]) WITH ORDINALITY AS given (name, place)
WHERE EXISTS (
    SELECT
    FROM pg_locks
    WHERE pid = pg_backend_pid()
      AND relation = to_regclass(name)
      AND mode = 'ShareUpdateExclusiveLock'
)
ORDER BY place;

-- name: count_rows
SELECT count(*) AS rows
FROM {table};

-- name: bytes
-- Size of tables and their partitions, and of all tables in some schemas, with indexes.
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes
FROM pg_class
WHERE relkind = 'r'
  AND (
      oid IN (SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS given (name))
      OR oid IN (SELECT relid FROM pg_partition_tree(to_regclass(%(runs)s)))
      OR relnamespace IN (
          SELECT oid
          FROM pg_namespace
          WHERE nspname = ANY (%(schemas)s)
      )
  );

-- name: unrelayed
-- Dead letters and messages of the outbox that the relay has yet to send.
SELECT (
           SELECT count(*)
           FROM tallyweir.dead_letter AS dead
           LEFT JOIN tallyweir.relay_cursor AS place
               ON place.pipeline = dead.pipeline
              AND place.stream = 'dead_letter'
           WHERE dead.pipeline = %(pipeline)s
             AND (
                 place.pipeline IS NULL
                 OR (dead.sequence, dead.kafka_topic, dead.kafka_partition,
                     dead.kafka_offset)
                    > (place.sequence, place.kafka_topic, place.kafka_partition,
                       place.kafka_offset)
             )
       )
       + (
           SELECT count(*)
           FROM tallyweir.outbox
           WHERE pipeline = %(pipeline)s
       ) AS messages;

-- name: note_discarded
INSERT INTO tallyweir.discarded_pipeline (
    pipeline_number, pipeline, front, batches, committed, reason
)
SELECT pipeline_number, pipeline,
       (
           SELECT string_agg(DISTINCT other.pipeline, ', ')
           FROM tallyweir.pipeline AS other
           CROSS JOIN jsonb_array_elements(other.definition -> 'outputs') AS output (entry)
           WHERE other.pipeline <> %(pipeline)s
             AND output.entry ->> 'table' = ANY (%(fronts)s)
       ),
       (
           SELECT count(*)
           FROM tallyweir.batch
           WHERE pipeline = %(pipeline)s
       ),
       (
           SELECT coalesce(sum(committed), 0)
           FROM tallyweir.batch_partition
           WHERE pipeline = %(pipeline)s
       ),
       %(reason)s
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s
RETURNING front, batches, committed;

-- name: delete_rows
DELETE FROM {table}
WHERE pipeline = %(pipeline)s;

-- name: drop_table
DROP TABLE IF EXISTS {table};
