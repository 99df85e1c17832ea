-- Snapshots of pipelines, and the batches that restores to them have taken back.
-- depends: 0027_driver_log

-- Where a pipeline stood between two batches; what its batches change in place is copied
-- to a schema of the snapshot's own.
CREATE TABLE tallyweir.snapshot (
    snapshot_number integer GENERATED ALWAYS AS IDENTITY UNIQUE,
    pipeline        text NOT NULL REFERENCES tallyweir.pipeline,
    name            text NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,39}$'),
    reason          text NOT NULL CHECK (btrim(reason) <> ''),
    sequence        bigint NOT NULL,
    watermark       timestamptz,
    definition      jsonb NOT NULL,
    -- The newest claim before it.
    epoch           bigint NOT NULL,
    -- The last move of a position before it; 0 if there was none.
    move            bigint NOT NULL,
    -- Seconds since 1970 of event time from which IDs were remembered. Null: all.
    ids_since       bigint,
    taken_by        text NOT NULL DEFAULT session_user,
    taken_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, name)
);

-- Batches that a restore has taken back. Their numbers are not used again.
CREATE TABLE tallyweir.restore (
    pipeline         text NOT NULL,
    -- The claim of the act, whose row in tallyweir.act has the reason and the counts.
    epoch            bigint NOT NULL,
    snapshot         text NOT NULL,
    after_sequence   bigint NOT NULL,
    through_sequence bigint NOT NULL CHECK (through_sequence >= after_sequence),
    PRIMARY KEY (pipeline, epoch),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim
);

-- Not what a snapshot still needs: restoring it takes the watermark back, and events of
-- these buckets are not expired then. Who takes a snapshot holds the lock meanwhile.
CREATE OR REPLACE FUNCTION tallyweir.drop_bucket(
    of_pipeline_number integer, of_bucket bigint
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7255949, of_pipeline_number);
    IF EXISTS (
        SELECT
        FROM tallyweir.snapshot AS kept
        JOIN tallyweir.pipeline AS pipeline USING (pipeline)
        WHERE pipeline_number = of_pipeline_number
          AND (ids_since IS NULL OR of_bucket + bucket_seconds > ids_since)
    ) THEN
        RETURN;
    END IF;
    EXECUTE format(
        'DROP TABLE IF EXISTS tallyweir.%I',
        tallyweir.name_bucket(of_pipeline_number, of_bucket)
    );
END
$$;
