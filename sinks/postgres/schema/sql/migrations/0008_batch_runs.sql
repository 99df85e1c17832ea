-- Batch runs: bounded inputs, each published as one batch, once by the run's name.
-- depends: 0007_keyed_state

-- A claim of a run ends with the run; a driver that it has fenced goes on then.
ALTER TABLE tallyweir.epoch_claim
    ADD COLUMN run text;

CREATE TABLE tallyweir.batch_run (
    pipeline text NOT NULL REFERENCES tallyweir.pipeline,
    run      text NOT NULL,
    sequence bigint NOT NULL,
    -- truncate: whatever batches before it had brought to the tables went with it.
    disposition text NOT NULL CHECK (disposition IN ('append', 'truncate')),
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

-- The first batch whose rows, IDs and watermark are still the pipeline's.
CREATE VIEW tallyweir.standing_from AS
SELECT pipeline,
       coalesce(
           (
               SELECT max(sequence)
               FROM tallyweir.batch_run AS run
               WHERE run.pipeline = pipeline.pipeline
                 AND run.disposition = 'truncate'
           ),
           1
       ) AS sequence
FROM tallyweir.pipeline AS pipeline;
