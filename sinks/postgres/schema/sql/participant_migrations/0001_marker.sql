-- What a database holds that publishes branches of batches: their markers.
-- depends:

-- One row per committed branch, inserted in the branch's own transaction: if it is
-- there, the branch was committed, and nothing else proves it.
CREATE TABLE tallyweir_participant.marker (
    -- The home database that decides, and its pipeline.
    installation    text NOT NULL,
    pipeline_number integer NOT NULL,
    branch          text NOT NULL,
    -- The home's number of the batch. The key makes a batch's branch commit once.
    sequence        bigint NOT NULL,
    gid             text NOT NULL UNIQUE,
    pipeline        text NOT NULL,
    -- Rows that the branch moved out of staging.
    rows            bigint NOT NULL CHECK (rows >= 0),
    prepared_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (installation, pipeline_number, branch, sequence)
);
