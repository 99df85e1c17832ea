-- Pipelines that run beside the one that they were forked from, in tables that nobody
-- reads, until they change places.
-- depends: 0023_erasure

-- Where a pipeline really writes what its file calls otherwise. Changed by acts only, so
-- whoever works under a claim knows it as it is.
CREATE TABLE tallyweir.shadow_table (
    pipeline     text NOT NULL REFERENCES tallyweir.pipeline,
    -- As the pipeline's file has it; readers find the other pipeline's rows there.
    front_table  text NOT NULL,
    shadow_table text NOT NULL CHECK (shadow_table <> front_table),
    PRIMARY KEY (pipeline, front_table),
    UNIQUE (shadow_table)
);
