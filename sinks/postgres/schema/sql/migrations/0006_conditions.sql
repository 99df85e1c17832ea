-- Events that a pipeline's own conditions leave out: of all outputs, or of some.
-- depends: 0005_publisher_without_ddl

-- Events that no output wants, by position: why a record is not in the results.
CREATE TABLE tallyweir.filtered_event (
    pipeline        text NOT NULL,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    sequence        bigint NOT NULL,
    event_id        text NOT NULL,
    -- The condition that was not true of the event.
    condition       text NOT NULL,
    PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX filtered_event_by_event ON tallyweir.filtered_event (pipeline, event_id);

-- Sum of the Kafka offsets of the events that the output took. Null where it has no
-- condition, and so takes every committed event: then the batch's checksum is its own.
ALTER TABLE tallyweir.batch_output ADD COLUMN checksum numeric;
