-- The home database's schema: ledger, positions, seen IDs and the events that did
-- not become results. Constraints carry the protocol's invariants, so that a bug in
-- Python cannot break them.
-- depends:

CREATE SCHEMA IF NOT EXISTS tallyweir;

-- One row: the secret that keys every fingerprint. A stranger who knew it could make
-- two IDs collide and so have an event dropped as a duplicate.
CREATE TABLE tallyweir.installation (
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    fingerprint_key bytea NOT NULL CHECK (octet_length(fingerprint_key) = 16),
    installed_at    timestamptz NOT NULL DEFAULT now()
);

INSERT INTO tallyweir.installation (fingerprint_key)
SELECT substring(
    sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) FOR 16
);

-- One row per pipeline. Publishing locks it, which orders the publish transactions
-- of all its drivers.
CREATE TABLE tallyweir.pipeline (
    pipeline        text PRIMARY KEY,
    -- Short stand-in for the name in identifiers, which hold 63 bytes only.
    pipeline_number integer GENERATED ALWAYS AS IDENTITY UNIQUE,
    definition      jsonb NOT NULL,
    definition_hash text NOT NULL,
    -- Fixed for the pipeline's life: stored runs are filed under both.
    shards          integer NOT NULL CHECK (shards > 0),
    bucket_seconds  bigint NOT NULL CHECK (bucket_seconds > 0),
    -- Never goes back, except together with everything else by a restore.
    watermark       timestamptz,
    last_sequence   bigint NOT NULL DEFAULT 0 CHECK (last_sequence >= 0),
    registered_at   timestamptz NOT NULL DEFAULT now()
);

-- Append-only: the newest epoch of a pipeline is the only one that may publish.
-- A claim is an insert and never waits for a lock that a dead driver left behind.
CREATE TABLE tallyweir.epoch_claim (
    pipeline   text NOT NULL REFERENCES tallyweir.pipeline,
    epoch      bigint NOT NULL CHECK (epoch > 0),
    host       text NOT NULL,
    process_id integer NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, epoch)
);

-- Where the pipeline stands in Kafka. next_offset is the next offset to read.
CREATE TABLE tallyweir.partition_progress (
    pipeline       text NOT NULL REFERENCES tallyweir.pipeline,
    topic          text NOT NULL,
    partition      integer NOT NULL CHECK (partition >= 0),
    -- Kafka's id of the topic: a topic made again under its old name has another.
    topic_id       text NOT NULL,
    next_offset    bigint NOT NULL CHECK (next_offset >= 0),
    event_time_max timestamptz,
    -- When an event of this partition was committed last; idle ones do not hold the
    -- watermark.
    active_at      timestamptz,
    PRIMARY KEY (pipeline, topic, partition)
);

-- The ledger: one row per published batch, written in its publish transaction.
CREATE TABLE tallyweir.batch (
    pipeline         text NOT NULL REFERENCES tallyweir.pipeline,
    sequence         bigint NOT NULL CHECK (sequence > 0),
    epoch            bigint NOT NULL,
    spark_batch_id   bigint NOT NULL CHECK (spark_batch_id >= 0),
    watermark_before timestamptz,
    watermark_after  timestamptz,
    -- Sum of the Kafka offsets of the committed events; verify recomputes it.
    checksum         numeric NOT NULL,
    -- Versions of the lookup tables that the batch was enriched with.
    lookups          jsonb NOT NULL DEFAULT '{}',
    -- How often the batch was staged again without rows that Postgres rejected.
    restagings       integer NOT NULL DEFAULT 0 CHECK (restagings >= 0),
    planned_at       timestamptz NOT NULL,
    staged_at        timestamptz NOT NULL,
    published_at     timestamptz NOT NULL,
    PRIMARY KEY (pipeline, sequence),
    -- One decision per batch of a driver, however often its answer was lost.
    UNIQUE (pipeline, epoch, spark_batch_id),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim,
    CHECK (watermark_before IS NULL OR watermark_after >= watermark_before)
);

-- The conservation law, kept by the database itself.
CREATE TABLE tallyweir.batch_partition (
    pipeline     text NOT NULL,
    sequence     bigint NOT NULL,
    topic        text NOT NULL,
    partition    integer NOT NULL,
    from_offset  bigint NOT NULL CHECK (from_offset >= 0),
    until_offset bigint NOT NULL,
    read         bigint NOT NULL CHECK (read >= 0),
    committed    bigint NOT NULL CHECK (committed >= 0),
    duplicate    bigint NOT NULL CHECK (duplicate >= 0),
    dead         bigint NOT NULL CHECK (dead >= 0),
    late         bigint NOT NULL CHECK (late >= 0),
    expired      bigint NOT NULL CHECK (expired >= 0),
    filtered     bigint NOT NULL CHECK (filtered >= 0),
    PRIMARY KEY (pipeline, sequence, topic, partition),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch,
    CHECK (until_offset >= from_offset),
    CHECK (read <= until_offset - from_offset),
    CONSTRAINT conservation
        CHECK (read = committed + duplicate + dead + late + expired + filtered)
);

-- What each output took of a batch. rows counts table rows: events for an append
-- output, touched groups for a window output.
CREATE TABLE tallyweir.batch_output (
    pipeline     text NOT NULL,
    sequence     bigint NOT NULL,
    output_table text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('append', 'window')),
    events       bigint NOT NULL CHECK (events >= 0),
    rows         bigint NOT NULL CHECK (rows >= 0),
    late         bigint NOT NULL CHECK (late >= 0),
    revised      bigint NOT NULL CHECK (revised >= 0),
    PRIMARY KEY (pipeline, sequence, output_table),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);

-- Offsets that retention deleted before they were read, accepted by a person.
CREATE TABLE tallyweir.accepted_gap (
    pipeline       text NOT NULL REFERENCES tallyweir.pipeline,
    topic          text NOT NULL,
    partition      integer NOT NULL,
    from_offset    bigint NOT NULL,
    until_offset   bigint NOT NULL,
    after_sequence bigint NOT NULL,
    reason         text NOT NULL CHECK (btrim(reason) <> ''),
    accepted_by    text NOT NULL DEFAULT session_user,
    accepted_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, topic, partition, from_offset),
    CHECK (until_offset > from_offset)
);

-- The seen-ID catalog: sorted runs of 16-byte fingerprints. One partition per
-- pipeline and bucket, so that forgetting a bucket is one DROP.
CREATE TABLE tallyweir.seen_id_run (
    pipeline       text NOT NULL,
    -- Seconds since 1970 at which the bucket begins, by the events' own time.
    bucket         bigint NOT NULL,
    shard          integer NOT NULL CHECK (shard >= 0),
    sequence       bigint NOT NULL,
    ids            integer NOT NULL CHECK (ids > 0),
    first          bytea NOT NULL,
    last           bytea NOT NULL,
    fingerprints   bytea NOT NULL,
    payload_hashes bytea,
    PRIMARY KEY (pipeline, bucket, shard, sequence),
    CHECK (octet_length(fingerprints) = 16 * ids),
    CHECK (payload_hashes IS NULL OR octet_length(payload_hashes) = 8 * ids),
    CHECK (first <= last)
) PARTITION BY LIST (pipeline);

-- Random bytes do not compress; trying costs a third of the insert.
ALTER TABLE tallyweir.seen_id_run
    ALTER COLUMN fingerprints SET STORAGE EXTERNAL,
    ALTER COLUMN payload_hashes SET STORAGE EXTERNAL;

-- Events that could not become results. The key makes a second dead letter for one
-- record impossible.
CREATE TABLE tallyweir.dead_letter (
    pipeline        text NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    sequence        bigint NOT NULL,
    kafka_timestamp timestamptz,
    reason          text NOT NULL,
    detail          text NOT NULL,
    event_id        text,
    key             bytea,
    payload         bytea,
    PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX dead_letter_by_event ON tallyweir.dead_letter (pipeline, event_id);

-- Events behind the watermark of an output, kept so that they can be read and
-- replayed.
CREATE TABLE tallyweir.late_event (
    pipeline        text NOT NULL,
    output_table    text NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    sequence        bigint NOT NULL,
    event_id        text,
    event_time      timestamptz NOT NULL,
    payload         bytea NOT NULL,
    PRIMARY KEY (pipeline, output_table, kafka_topic, kafka_partition, kafka_offset),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX late_event_by_event ON tallyweir.late_event (pipeline, event_id);

-- Events older than the seen-ID horizon: whether they are repeats cannot be known.
CREATE TABLE tallyweir.expired_event (
    pipeline        text NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    sequence        bigint NOT NULL,
    event_id        text,
    event_time      timestamptz NOT NULL,
    payload         bytea NOT NULL,
    PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX expired_event_by_event ON tallyweir.expired_event (pipeline, event_id);

-- Repeats that were dropped, by position: why a record is not in the results.
CREATE TABLE tallyweir.duplicate_event (
    pipeline        text NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    sequence        bigint NOT NULL,
    event_id        text NOT NULL,
    PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX duplicate_event_by_event ON tallyweir.duplicate_event (pipeline, event_id);
