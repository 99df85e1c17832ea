-- Makes a pipeline that goes on from where another one stands.

-- name: own_columns
SELECT array_agg(attname ORDER BY attnum) AS columns
FROM pg_attribute
WHERE attrelid = ('tallyweir.' || %(table)s)::regclass
  AND attnum > 0
  AND NOT attisdropped
  AND attgenerated = ''
  AND attidentity = '';

-- name: pipeline
SELECT pipeline_number, definition
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: branches
SELECT EXISTS (
    SELECT
    FROM tallyweir.batch_branch
    WHERE pipeline = %(pipeline)s
) AS exist;

-- name: draw_moves
SELECT move, nextval('tallyweir.position_move') AS drawn
FROM (
    SELECT move
    FROM tallyweir.accepted_gap
    WHERE pipeline = %(pipeline)s
    UNION
    SELECT move
    FROM tallyweir.offset_reset
    WHERE pipeline = %(pipeline)s
    ORDER BY move
) AS in_order;

-- name: copy_rows
INSERT INTO {target} ({columns})
SELECT {values}
FROM {table}
WHERE pipeline = %(pipeline)s
  AND {kept};

-- name: insert_shadow
INSERT INTO tallyweir.shadow_table (pipeline, front_table, shadow_table)
VALUES (%(pipeline)s, %(front)s, %(shadow)s);

-- name: own_shadow
INSERT INTO tallyweir_state.result_table (relation, installation, pipeline)
SELECT %(relation)s, installation_id, %(pipeline)s
FROM tallyweir.installation;

-- name: relayed_already
-- The other pipeline sends the letters that were copied.
INSERT INTO tallyweir.relay_cursor (
    pipeline, stream, sequence, kafka_topic, kafka_partition, kafka_offset, messages
)
SELECT pipeline, 'dead_letter', sequence, kafka_topic, kafka_partition, kafka_offset,
       count(*) OVER ()
FROM tallyweir.dead_letter
WHERE pipeline = %(pipeline)s
ORDER BY sequence DESC, kafka_topic DESC, kafka_partition DESC, kafka_offset DESC
LIMIT 1;

-- name: table_exists
-- The table may exist already, or be reserved for another pipeline.
SELECT to_regclass(%(table)s) IS NOT NULL
    OR EXISTS (
        SELECT
        FROM tallyweir_state.result_table
        WHERE relation = %(relation)s
    ) AS exists;

-- name: present_tables
SELECT name
FROM unnest(%(tables)s::text[]) AS given (name)
WHERE to_regclass(name) IS NOT NULL
ORDER BY name;

-- name: set_lock_timeout
-- Uses SET, because a SELECT would take the snapshot of the transaction.
SET LOCAL lock_timeout = {timeout};

-- name: keep_tables
-- Keeps tables from being renamed, altered or dropped until the end. Publishes and
-- readers do not wait.
LOCK TABLE {tables} IN SHARE UPDATE EXCLUSIVE MODE;

-- name: column_names
SELECT coalesce(array_agg(attname ORDER BY attnum), '{}') AS columns
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s)
  AND attnum > 0
  AND NOT attisdropped
  AND attgenerated = '';

-- name: create_like
CREATE TABLE {shadow} (LIKE {table} INCLUDING ALL);

-- name: owner
-- Also returns what LIKE leaves out: storage settings such as the fillfactor.
SELECT pg_get_userbyid(relowner) AS owner,
       (SELECT nspname FROM pg_namespace WHERE pg_namespace.oid = relnamespace) AS schema,
       (
           SELECT coalesce(jsonb_object_agg(option_name, option_value), '{}')
           FROM pg_options_to_table(reloptions)
       ) AS settings
FROM pg_class
WHERE oid = to_regclass(%(table)s);

-- name: set_owner
ALTER TABLE {table} OWNER TO {owner};

-- name: set_storage
ALTER TABLE {table} SET ({settings});

-- name: copy_table
INSERT INTO {shadow} ({columns}) OVERRIDING SYSTEM VALUE
SELECT {columns}
FROM {table};

-- name: identities
-- Identity columns, each with its sequence and the one that LIKE made for its copy.
SELECT nspname AS schema, relname AS sequence,
       pg_get_serial_sequence(%(shadow)s, attname) AS own
FROM pg_attribute
JOIN pg_class
    ON pg_class.oid = pg_get_serial_sequence(%(table)s, attname)::regclass
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE attrelid = to_regclass(%(table)s)
  AND attidentity <> ''
  AND NOT attisdropped;

-- name: go_on_numbering
-- Reads the sequence as it is now, so it has passed every row of any snapshot.
SELECT setval(%(own)s::regclass, last_value, is_called)
FROM {sequence};

-- name: create_runs
-- Creates the runs apart from the catalog, to attach them at the end. If they were
-- created as a part of it, every pipeline's publish would wait meanwhile.
CREATE TABLE {runs} (LIKE tallyweir.seen_id_run INCLUDING ALL)
    PARTITION BY LIST (bucket);

-- name: buckets
SELECT DISTINCT bucket
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
ORDER BY bucket;

-- name: create_bucket
SELECT tallyweir.create_bucket(%(number)s, %(bucket)s);

-- name: attach_runs
ALTER TABLE tallyweir.seen_id_run
    ATTACH PARTITION {runs} FOR VALUES IN ({pipeline});

-- name: claimed
INSERT INTO tallyweir.epoch_claim (pipeline, epoch, host, process_id, is_act)
SELECT %(pipeline)s, max(epoch) + 1, %(host)s, %(process_id)s, true
FROM tallyweir.epoch_claim
WHERE pipeline = %(pipeline)s
RETURNING epoch;
