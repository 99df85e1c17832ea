-- Which pipeline a result table belongs to.
-- depends: 0003_row_digests

-- The home's migration of this name makes the same table, where this is a home too.
CREATE TABLE IF NOT EXISTS tallyweir_state.result_table (
    -- As schema.table. The key decides between two pipelines that start at once.
    relation     text PRIMARY KEY,
    -- The home that knows the pipeline.
    installation text NOT NULL,
    pipeline     text NOT NULL,
    claimed_at   timestamptz NOT NULL DEFAULT now()
);
