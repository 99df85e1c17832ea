-- name: bisection_settings
SELECT set_config('lock_timeout', '30s', true),
       set_config('statement_timeout', '0', true),
       -- Tried rows hold their keys, and a successor must not wait for the keys of a
       -- driver that is gone.
       set_config('idle_in_transaction_session_timeout', '30s', true)

-- name: check_constraints_at_once
SET CONSTRAINTS ALL IMMEDIATE

-- name: number_rows
CREATE UNLOGGED TABLE {numbered} AS
SELECT
    row_number() OVER (
        ORDER BY kafka_topic, kafka_partition, kafka_offset
    ) AS tallyweir_row,
    *
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])

-- name: index_numbers
CREATE UNIQUE INDEX ON {numbered} (tallyweir_row)

-- name: insert_range
WITH settled AS (
    INSERT INTO {target} ({columns})
    SELECT {sources}
    FROM {numbered}
    WHERE tallyweir_row BETWEEN %(first)s AND %(last)s
    RETURNING 1
)
SELECT count(*) FROM settled

-- name: read_position
SELECT kafka_topic, kafka_partition, kafka_offset
FROM {numbered}
WHERE tallyweir_row = %(number)s
