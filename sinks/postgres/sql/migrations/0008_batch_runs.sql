-- Batch runs: bounded inputs, each published as one batch, once by the run's name.
-- depends: 0007_keyed_state

-- A claim of a run ends with the run; a driver that it has fenced goes on then.
ALTER TABLE tallyweir.epoch_claim
    ADD COLUMN run text;

CREATE TABLE tallyweir.batch_run (
    pipeline text NOT NULL REFERENCES tallyweir.pipeline,
    run      text NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (pipeline, run),
    UNIQUE (pipeline, sequence),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);

-- What partition N of the topic batch:RUN was.
CREATE TABLE tallyweir.batch_run_input (
    pipeline  text NOT NULL,
    run       text NOT NULL,
    partition integer NOT NULL CHECK (partition >= 0),
    name      text NOT NULL,
    checksum  text NOT NULL,
    PRIMARY KEY (pipeline, run, partition),
    FOREIGN KEY (pipeline, run) REFERENCES tallyweir.batch_run
);
