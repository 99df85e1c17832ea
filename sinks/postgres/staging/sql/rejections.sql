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

-- name: create_refusal
-- Its error handler makes no transaction ID, so it may run once for each row.
CREATE FUNCTION {refusal}(tallyweir_given {numbered}) RETURNS text
LANGUAGE plpgsql
AS {body}

-- name: refusal_body
DECLARE
    tallyweir_column text;
BEGIN
    {tries}
    RETURN NULL;
EXCEPTION
    -- The states of is_row_rejection.
    WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded
        OR statement_too_complex OR raise_exception THEN
        RETURN SQLSTATE || ' ' || left(SQLERRM, 300) || CASE
            WHEN SQLERRM LIKE 'VALUE_WOULD_CHANGE%' THEN ''
            ELSE ', in column ' || tallyweir_column
        END;
END

-- name: try_column
tallyweir_column := {shown};
PERFORM {source} FROM (SELECT tallyweir_given.{name} AS {name}) AS staged;

-- name: take_out_refused
DELETE FROM {numbered} AS kept
USING (
    SELECT tallyweir_row, refusal
    FROM (
        SELECT tallyweir_row, {refusal}(one) AS refusal FROM {numbered} AS one
    ) AS judged
    WHERE refusal IS NOT NULL
    LIMIT %(most)s
) AS refused
WHERE kept.tallyweir_row = refused.tallyweir_row
RETURNING kafka_topic, kafka_partition, kafka_offset, refusal

-- name: insert_range
WITH settled AS (
    INSERT INTO {target} ({columns})
    SELECT {sources}
    FROM {numbered}
    WHERE tallyweir_row BETWEEN %(first)s AND %(last)s
    RETURNING 1
)
SELECT
    count(*),
    (
        SELECT count(*)
        FROM {numbered}
        WHERE tallyweir_row BETWEEN %(first)s AND %(last)s
    )
FROM settled

-- name: read_position
SELECT kafka_topic, kafka_partition, kafka_offset
FROM {numbered}
WHERE tallyweir_row = %(number)s
