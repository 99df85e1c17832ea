-- The newest warnings and errors of drivers, for people; nothing is decided by them.
-- depends: 0026_receipt

CREATE TABLE tallyweir.driver_log (
    pipeline text NOT NULL REFERENCES tallyweir.pipeline,
    number   bigint GENERATED ALWAYS AS IDENTITY,
    at       timestamptz NOT NULL,
    level    text NOT NULL CHECK (level IN ('warning', 'error', 'critical')),
    event    text NOT NULL,
    -- The batch at hand, and the driver's epoch where its line names it.
    sequence bigint NOT NULL,
    epoch    bigint,
    -- What the line says beside, never a payload and no stack trace.
    detail   jsonb NOT NULL,
    PRIMARY KEY (pipeline, number)
);
CREATE INDEX driver_log_by_batch ON tallyweir.driver_log (pipeline, sequence);
