-- Batch runs that correct what came before them: which rows went for newer ones.
-- depends: 0009_guarantee

ALTER TABLE tallyweir.batch_run
    DROP CONSTRAINT batch_run_disposition_check,
    ADD CONSTRAINT batch_run_disposition_check
        CHECK (disposition IN ('append', 'truncate', 'upsert')),
    -- Filtered events that corrected earlier ones: no output took them, and their IDs
    -- are remembered all the same.
    ADD COLUMN retracted bigint NOT NULL DEFAULT 0 CHECK (retracted >= 0);

-- Rows that were taken out of an append output, by position: their batches have
-- committed them, and their tables do not hold them any more.
CREATE TABLE tallyweir.replaced_row (
    pipeline        text NOT NULL,
    output_table    text NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    -- The batch whose event of the same ID came in the row's place.
    sequence        bigint NOT NULL,
    event_id        text NOT NULL,
    PRIMARY KEY (pipeline, output_table, kafka_topic, kafka_partition, kafka_offset),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX replaced_row_by_event ON tallyweir.replaced_row (pipeline, event_id);
