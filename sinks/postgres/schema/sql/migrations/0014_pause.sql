-- Pauses of pipelines, by whom and why. Kept for good, like the claims.
-- depends: 0013_payload_hashes_anew

-- A pause has a claim of its own: whoever worked before it is fenced by that.
CREATE TABLE tallyweir.pause (
    pipeline   text NOT NULL,
    epoch      bigint NOT NULL,
    reason     text NOT NULL CHECK (reason <> ''),
    paused_by  text NOT NULL DEFAULT session_user,
    paused_at  timestamptz NOT NULL DEFAULT now(),
    -- NULL while the pause lasts.
    resumed_by text,
    resumed_at timestamptz,
    PRIMARY KEY (pipeline, epoch),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim,
    CHECK ((resumed_by IS NULL) = (resumed_at IS NULL))
);

CREATE UNIQUE INDEX pause_at_most_one
    ON tallyweir.pause (pipeline) WHERE resumed_at IS NULL;
