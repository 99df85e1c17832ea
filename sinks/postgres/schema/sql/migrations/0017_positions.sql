-- Positions that people move, and records that are read again because of it.
-- depends: 0016_pipeline_versions

-- Moves of a position in their order; drawn under the lock of the pipeline's row.
CREATE SEQUENCE tallyweir.position_move;

ALTER TABLE tallyweir.accepted_gap
    ADD COLUMN move bigint NOT NULL UNIQUE DEFAULT nextval('tallyweir.position_move');

-- Forward, records are skipped; backward, they are read again.
CREATE TABLE tallyweir.offset_reset (
    pipeline       text NOT NULL,
    -- The claim of the act, whose row in tallyweir.act has the reason.
    epoch          bigint NOT NULL,
    topic          text NOT NULL,
    partition      integer NOT NULL,
    -- Where the pipeline stood, and where it goes on.
    from_offset    bigint NOT NULL CHECK (from_offset >= 0),
    until_offset   bigint NOT NULL CHECK (until_offset >= 0),
    after_sequence bigint NOT NULL,
    move           bigint NOT NULL UNIQUE DEFAULT nextval('tallyweir.position_move'),
    PRIMARY KEY (pipeline, epoch, topic, partition),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim,
    CHECK (from_offset <> until_offset)
);

-- A record has one fate in each batch that reads it.
ALTER TABLE tallyweir.dead_letter
    DROP CONSTRAINT dead_letter_pkey,
    ADD PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset, sequence);
ALTER TABLE tallyweir.expired_event
    DROP CONSTRAINT expired_event_pkey,
    ADD PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset, sequence);
ALTER TABLE tallyweir.duplicate_event
    DROP CONSTRAINT duplicate_event_pkey,
    ADD PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset, sequence);
ALTER TABLE tallyweir.filtered_event
    DROP CONSTRAINT filtered_event_pkey,
    ADD PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset, sequence);
ALTER TABLE tallyweir.late_event
    DROP CONSTRAINT late_event_pkey,
    ADD PRIMARY KEY (
        pipeline, output_table, kafka_topic, kafka_partition, kafka_offset, sequence
    );

-- Every reading of a record that made no result of it.
CREATE VIEW tallyweir.put_aside AS
SELECT 'dead_letter' AS kind, pipeline, kafka_topic, kafka_partition, kafka_offset,
       sequence
FROM tallyweir.dead_letter
UNION ALL
SELECT 'expired_event', pipeline, kafka_topic, kafka_partition, kafka_offset, sequence
FROM tallyweir.expired_event
UNION ALL
SELECT 'duplicate_event', pipeline, kafka_topic, kafka_partition, kafka_offset, sequence
FROM tallyweir.duplicate_event
UNION ALL
SELECT 'filtered_event', pipeline, kafka_topic, kafka_partition, kafka_offset, sequence
FROM tallyweir.filtered_event;

-- Records that were put aside, were read again, and became results then: the batch.
CREATE VIEW tallyweir.second_chance AS
SELECT aside.pipeline, aside.kafka_topic, aside.kafka_partition, aside.kafka_offset,
       min(again.sequence) AS sequence
FROM tallyweir.offset_reset AS reset
JOIN tallyweir.put_aside AS aside
    ON aside.pipeline = reset.pipeline
   AND aside.kafka_topic = reset.topic
   AND aside.kafka_partition = reset.partition
   AND aside.kafka_offset >= reset.until_offset
   AND aside.kafka_offset < reset.from_offset
   AND aside.sequence <= reset.after_sequence
JOIN tallyweir.batch_partition AS again
    ON again.pipeline = aside.pipeline
   AND again.topic = aside.kafka_topic
   AND again.partition = aside.kafka_partition
   AND again.sequence > reset.after_sequence
   AND aside.kafka_offset >= again.from_offset
   AND aside.kafka_offset < again.until_offset
WHERE NOT EXISTS (
    SELECT
    FROM tallyweir.put_aside AS too
    WHERE too.pipeline = again.pipeline
      AND too.kafka_topic = again.topic
      AND too.kafka_partition = again.partition
      AND too.kafka_offset = aside.kafka_offset
      AND too.sequence = again.sequence
)
GROUP BY aside.pipeline, aside.kafka_topic, aside.kafka_partition, aside.kafka_offset;

-- What was put aside, but for records of which another reading made a result.
CREATE VIEW tallyweir.no_result AS
SELECT aside.kind, aside.pipeline, aside.kafka_topic, aside.kafka_partition,
       aside.kafka_offset, aside.sequence
FROM tallyweir.put_aside AS aside
WHERE NOT EXISTS (
    SELECT
    FROM tallyweir.offset_reset AS reset
    JOIN tallyweir.batch_partition AS other USING (pipeline, topic, partition)
    WHERE reset.pipeline = aside.pipeline
      AND reset.topic = aside.kafka_topic
      AND reset.partition = aside.kafka_partition
      AND aside.kafka_offset >= reset.until_offset
      AND aside.kafka_offset < reset.from_offset
      AND aside.kafka_offset >= other.from_offset
      AND aside.kafka_offset < other.until_offset
      AND other.sequence <> aside.sequence
      AND NOT EXISTS (
          SELECT
          FROM tallyweir.put_aside AS too
          WHERE too.pipeline = aside.pipeline
            AND too.kafka_topic = aside.kafka_topic
            AND too.kafka_partition = aside.kafka_partition
            AND too.kafka_offset = aside.kafka_offset
            AND too.sequence = other.sequence
      )
);
