-- What each batch has cost, step by step; docs/status.md names every field.
-- depends: 0017_positions

-- Beside the ledger and not of it: the newest batches only, and nothing depends on it.
CREATE TABLE tallyweir.batch_measures (
    pipeline text NOT NULL,
    sequence bigint NOT NULL,
    measures jsonb NOT NULL CHECK (jsonb_typeof(measures) = 'object'),
    PRIMARY KEY (pipeline, sequence),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch ON DELETE CASCADE
);
