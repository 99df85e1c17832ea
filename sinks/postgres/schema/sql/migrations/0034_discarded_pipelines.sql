-- Pipelines that were discarded with all that was theirs: who did it, when and why.
-- depends: 0033_hot_key_share

-- Kept for good, and the only thing that is left of them. While no pipeline of such a
-- name is registered, no driver registers one: its file names tables of the pipeline in
-- front, and would read its topic from the start into those.
CREATE TABLE tallyweir.discarded_pipeline (
    pipeline_number integer PRIMARY KEY,
    pipeline        text NOT NULL,
    -- Whose tables it shadowed; NULL where nobody writes them any more.
    front           text,
    -- Of its ledger, with what a fork has of the pipeline that it went on from.
    batches         bigint NOT NULL CHECK (batches >= 0),
    committed       bigint NOT NULL CHECK (committed >= 0),
    reason          text NOT NULL CHECK (btrim(reason) <> ''),
    discarded_by    text NOT NULL DEFAULT tallyweir.actor(),
    discarded_at    timestamptz NOT NULL DEFAULT now()
);
