-- Dead letters that were sent to their topics again, and by whom anything was done that
-- a service did for somebody.
-- depends: 0024_forks

-- Whoever does something: the login, and before it the person whom a service has made
-- out by a token.
CREATE FUNCTION tallyweir.actor() RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
    SELECT coalesce(
        nullif(current_setting('tallyweir.actor', true), '') || ' through ', ''
    ) || session_user
$$;

ALTER TABLE tallyweir.act ALTER COLUMN done_by SET DEFAULT tallyweir.actor();
ALTER TABLE tallyweir.pause ALTER COLUMN paused_by SET DEFAULT tallyweir.actor();

-- Kept for good. The letter itself stays what it is: its record became no result.
CREATE TABLE tallyweir.redrive (
    pipeline        text NOT NULL REFERENCES tallyweir.pipeline,
    kafka_topic     text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    -- Counts how often this letter was sent.
    attempt         integer NOT NULL CHECK (attempt > 0),
    reason          text NOT NULL CHECK (btrim(reason) <> ''),
    asked_by        text NOT NULL DEFAULT tallyweir.actor(),
    asked_at        timestamptz NOT NULL DEFAULT now(),
    -- Where Kafka has acknowledged it, in the same topic. NULL: it was about to be sent,
    -- and whether it was is not known.
    new_partition   integer,
    new_offset      bigint,
    sent_at         timestamptz,
    PRIMARY KEY (pipeline, kafka_topic, kafka_partition, kafka_offset, attempt),
    CHECK ((new_offset IS NULL) = (sent_at IS NULL)),
    CHECK ((new_offset IS NULL) = (new_partition IS NULL))
);

CREATE INDEX redrive_by_new_position
    ON tallyweir.redrive (pipeline, kafka_topic, new_partition, new_offset);
