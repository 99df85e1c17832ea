-- What each batch promised of its rows: once, or at least once.
-- depends: 0008_batch_runs

ALTER TABLE tallyweir.batch
    ADD COLUMN guarantee text NOT NULL DEFAULT 'exactly_once'
        CHECK (guarantee IN ('exactly_once', 'at_least_once'));
