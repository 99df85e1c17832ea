-- Drains of pipelines: who asked, whether open windows are closed, and where it ended.
-- depends: 0028_snapshots

-- Kept for good, like the claims.
CREATE TABLE tallyweir.drain (
    pipeline       text NOT NULL,
    -- The claim of whoever asked; tallyweir.act has who it was, when and why.
    epoch          bigint NOT NULL,
    closes_windows boolean NOT NULL,
    -- The pause that a drain ends with. NULL until then.
    drained_epoch  bigint,
    -- Somebody has let the pipeline go on before it was drained.
    called_off_at  timestamptz,
    PRIMARY KEY (pipeline, epoch),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim,
    FOREIGN KEY (pipeline, drained_epoch) REFERENCES tallyweir.pause,
    CHECK (drained_epoch > epoch),
    CHECK (drained_epoch IS NULL OR called_off_at IS NULL)
);

CREATE UNIQUE INDEX drain_at_most_one
    ON tallyweir.drain (pipeline)
    WHERE drained_epoch IS NULL AND called_off_at IS NULL;
