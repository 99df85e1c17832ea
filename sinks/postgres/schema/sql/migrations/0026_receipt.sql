-- What verify found last. A note for people; nothing is decided by it.
-- depends: 0025_redrive

CREATE TABLE tallyweir.receipt (
    pipeline    text PRIMARY KEY REFERENCES tallyweir.pipeline,
    is_verified boolean NOT NULL,
    summary     text NOT NULL,
    batches     bigint NOT NULL CHECK (batches >= 0),
    taken_at    timestamptz NOT NULL DEFAULT now(),
    taken_by    text NOT NULL DEFAULT tallyweir.actor()
);
