-- What was erased on somebody's demand: enough to keep it from coming back, and to
-- account for what is missing; nothing of what it said.
-- depends: 0021_scaling

-- Events under these IDs leave nothing but their positions, however often they are
-- sent.
CREATE TABLE tallyweir.erased_id (
    pipeline    text NOT NULL,
    -- Keyed by the installation's secret, as in the catalog of seen IDs.
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 16),
    epoch       bigint NOT NULL,
    PRIMARY KEY (pipeline, fingerprint),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim
);

-- By position: rows of append outputs and messages of the outbox that are gone, and rows
-- of side tables that say nothing any more. Read again, the record leaves nothing.
CREATE TABLE tallyweir.erased_row (
    pipeline        text NOT NULL,
    -- The output, as the ledger names it, or aside:TABLE.
    kept_in         text NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    epoch           bigint NOT NULL,
    PRIMARY KEY (pipeline, kept_in, kafka_topic, kafka_partition, kafka_offset),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim
);

-- Rows of functions and joins have no position; they are counted by their batch.
CREATE TABLE tallyweir.erased_result (
    pipeline     text NOT NULL,
    output_table text NOT NULL,
    sequence     bigint NOT NULL,
    epoch        bigint NOT NULL,
    rows         bigint NOT NULL CHECK (rows > 0),
    PRIMARY KEY (pipeline, output_table, sequence, epoch),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim
);

-- What is left of an event that was put aside: its position, and why.
ALTER TABLE tallyweir.late_event
    ALTER COLUMN event_time DROP NOT NULL,
    ALTER COLUMN payload DROP NOT NULL;
ALTER TABLE tallyweir.expired_event
    ALTER COLUMN event_time DROP NOT NULL,
    ALTER COLUMN payload DROP NOT NULL;
ALTER TABLE tallyweir.duplicate_event ALTER COLUMN event_id DROP NOT NULL;
ALTER TABLE tallyweir.filtered_event ALTER COLUMN event_id DROP NOT NULL;
ALTER TABLE tallyweir.replaced_row ALTER COLUMN event_id DROP NOT NULL;
