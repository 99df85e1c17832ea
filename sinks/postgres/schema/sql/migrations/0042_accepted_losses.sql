-- Rows of result tables that are gone, accepted by a person.
-- depends: 0041_table_owners

CREATE TABLE tallyweir.accepted_loss (
    pipeline         text NOT NULL REFERENCES tallyweir.pipeline,
    output_table     text NOT NULL,
    -- The last batch whose rows are not looked for any more.
    through_sequence bigint NOT NULL CHECK (through_sequence > 0),
    -- That the ledger counts of these batches.
    rows             bigint NOT NULL CHECK (rows >= 0),
    reason           text NOT NULL CHECK (btrim(reason) <> ''),
    accepted_by      text NOT NULL DEFAULT tallyweir.actor(),
    accepted_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, output_table, through_sequence)
);
