-- What people do to pipelines, beside running them: each act is a claim of its own.
-- depends: 0014_pause

-- The claim of an act fences whoever worked, and is nobody who works.
ALTER TABLE tallyweir.epoch_claim
    ADD COLUMN is_act boolean NOT NULL DEFAULT false;

UPDATE tallyweir.epoch_claim AS claim
SET is_act = true
FROM tallyweir.pause AS pause
WHERE pause.pipeline = claim.pipeline
  AND pause.epoch = claim.epoch;

-- Kept for good, like the claims: who changed what by hand, when and why.
CREATE TABLE tallyweir.act (
    pipeline       text NOT NULL,
    epoch          bigint NOT NULL,
    kind           text NOT NULL CHECK (kind <> ''),
    reason         text NOT NULL CHECK (btrim(reason) <> ''),
    -- The last batch that was published before it.
    after_sequence bigint NOT NULL CHECK (after_sequence >= 0),
    -- What was changed, by the kind.
    detail         jsonb NOT NULL DEFAULT '{}',
    done_by        text NOT NULL DEFAULT session_user,
    done_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, epoch),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim
);
