-- What is to leave for Kafka, and how far the relay has published it.
-- depends: 0003_branches

-- One row per pipeline and stream, moved only after the broker has acknowledged. The
-- position is that of the last message sent; it goes back with everything else in a
-- restore, and the relay then sends again under the same IDs.
CREATE TABLE tallyweir.relay_cursor (
    pipeline        text NOT NULL REFERENCES tallyweir.pipeline,
    stream          text NOT NULL CHECK (stream IN ('dead_letter', 'outbox')),
    sequence        bigint NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    -- Messages that were sent up to here, each counted once.
    messages        bigint NOT NULL CHECK (messages > 0),
    moved_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, stream)
);

-- The order in which dead letters are relayed.
CREATE INDEX dead_letter_in_order ON tallyweir.dead_letter
    (pipeline, sequence, kafka_topic, kafka_partition, kafka_offset);

-- Messages for other topics, written in the publish transaction and deleted in the one
-- that moves the cursor past them. The key is their order.
CREATE TABLE tallyweir.outbox (
    pipeline        text NOT NULL,
    sequence        bigint NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    -- Where to; the columns before it say which event it is made of.
    topic           text NOT NULL,
    event_id        text,
    key             bytea,
    value           bytea NOT NULL,
    PRIMARY KEY (
        pipeline, sequence, kafka_topic, kafka_partition, kafka_offset, topic
    ),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);

ALTER TABLE tallyweir.batch_output
    DROP CONSTRAINT batch_output_kind_check,
    ADD CONSTRAINT batch_output_kind_check
        CHECK (kind IN ('append', 'window', 'outbox'));
