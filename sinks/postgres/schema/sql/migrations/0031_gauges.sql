-- What only a watcher sees of pipelines, every so often, for charts; nothing is decided
-- by it, and the newest days are kept.
-- depends: 0030_samples

CREATE TABLE tallyweir.pipeline_gauge (
    pipeline      text NOT NULL REFERENCES tallyweir.pipeline,
    -- By the home's clock, cut to the interval: who watches as well adds nothing.
    at            timestamptz NOT NULL,
    freshness_s   float8,
    -- Offsets yet to read, the seconds that they take at the last minute's rate, the
    -- age of the oldest of them, and the time until Kafka deletes it. Null: Kafka did
    -- not say, or there is none.
    lag           bigint,
    catch_up_s    float8,
    unread_s      float8,
    headroom_s    float8,
    -- On the home's server; and batches that are decided and not committed everywhere.
    prepared      bigint NOT NULL,
    prepared_s    float8 NOT NULL,
    in_doubt      bigint NOT NULL,
    in_doubt_s    float8 NOT NULL,
    state_bytes   bigint NOT NULL,
    -- Null where deduplication is off.
    catalog_ids   bigint,
    catalog_bytes bigint,
    PRIMARY KEY (pipeline, at)
);
