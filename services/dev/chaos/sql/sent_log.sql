-- What the producers sent, and its outcome, in a SQLite file of the run.

-- name: create_transaction
CREATE TABLE producer_transaction (
    number  integer PRIMARY KEY,
    outcome text NOT NULL DEFAULT 'open'
)

-- name: create_record
CREATE TABLE record (
    transaction_number integer NOT NULL,
    kind               text NOT NULL,
    event_id           text NOT NULL,
    fingerprint        text NOT NULL,
    site               text NOT NULL,
    amount             integer NOT NULL,
    happened_at_us     integer NOT NULL,
    -- Where the broker put the record; NULL if the broker did not report it.
    partition          integer,
    kafka_offset       integer
)

-- name: begin
INSERT INTO producer_transaction DEFAULT VALUES

-- name: write_record
INSERT INTO record (
    transaction_number, kind, event_id, fingerprint, site, amount, happened_at_us,
    partition, kafka_offset
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: decide
UPDATE producer_transaction
SET outcome = ?
WHERE number = ?

-- name: committed
SELECT partition, kafka_offset, kind, event_id, fingerprint, site, amount,
       happened_at_us
FROM record
JOIN producer_transaction ON number = transaction_number
WHERE outcome = 'committed'

-- name: count_aborted
SELECT count(*)
FROM record
JOIN producer_transaction ON number = transaction_number
WHERE outcome = 'aborted'

-- name: count_transactions
SELECT outcome, count(*)
FROM producer_transaction
GROUP BY outcome
