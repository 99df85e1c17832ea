-- The newest rows of each step, for people, where a pipeline asks for them; what its file
-- redacts has not come this far.
-- depends: 0029_drain

-- A sample is of a published batch: written with it, and taken back with it.
CREATE TABLE tallyweir.sample (
    pipeline     text NOT NULL,
    step         text NOT NULL,
    -- The output that the rows are for; empty where they are events.
    output_table text NOT NULL,
    sequence     bigint NOT NULL,
    -- Names of fields that the rows have and do not show.
    redacted     jsonb NOT NULL CHECK (jsonb_typeof(redacted) = 'array'),
    rows         jsonb NOT NULL CHECK (jsonb_typeof(rows) = 'array'),
    PRIMARY KEY (pipeline, step, output_table),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch ON DELETE CASCADE
);
