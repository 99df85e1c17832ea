-- What users' functions keep for each key, and when they want to be called again.
-- depends: 0006_conditions

-- A tick is a batch without events, of which Spark knows nothing.
ALTER TABLE tallyweir.batch ALTER COLUMN spark_batch_id DROP NOT NULL;

ALTER TABLE tallyweir.batch_output
    DROP CONSTRAINT batch_output_kind_check,
    ADD CONSTRAINT batch_output_kind_check
        CHECK (kind IN ('append', 'window', 'outbox', 'stateful'));

-- One row for a value, and one for each entry of a list or a map, so that changing an
-- entry writes one row. Changed in publish transactions only.
CREATE TABLE tallyweir.keyed_state (
    pipeline       text NOT NULL REFERENCES tallyweir.pipeline,
    output_table   text NOT NULL,
    -- The key's columns as a JSON array.
    key            text COLLATE "C" NOT NULL,
    name           text NOT NULL,
    -- Empty for a value, the map's key, or where an element stands in its list.
    entry          text COLLATE "C" NOT NULL,
    -- json, not jsonb, which does not give every number back as it was.
    value          json NOT NULL,
    schema_version integer NOT NULL CHECK (schema_version > 0),
    -- Gone once the watermark is there.
    expires_at     timestamptz,
    -- The batch that wrote it.
    sequence       bigint NOT NULL,
    PRIMARY KEY (pipeline, output_table, key, name, entry),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX keyed_state_expiring ON tallyweir.keyed_state (pipeline, expires_at)
    WHERE expires_at IS NOT NULL;

-- One row per timer that is set; firing it deletes the row in the publish transaction
-- of what it has caused.
CREATE TABLE tallyweir.keyed_timer (
    pipeline     text NOT NULL REFERENCES tallyweir.pipeline,
    output_table text NOT NULL,
    key          text COLLATE "C" NOT NULL,
    name         text NOT NULL,
    -- Of the key; tasks work on shards.
    shard        integer NOT NULL CHECK (shard >= 0),
    -- event: due when the watermark is there; processing: when this server's clock is.
    clock        text NOT NULL CHECK (clock IN ('event', 'processing')),
    fires_at     timestamptz NOT NULL,
    sequence     bigint NOT NULL,
    PRIMARY KEY (pipeline, output_table, key, name),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX keyed_timer_due ON tallyweir.keyed_timer (pipeline, clock, fires_at);
