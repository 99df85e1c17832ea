-- Batches over several databases: who claims, what a batch was committed with, and
-- how far readers of several databases may look.
-- depends: 0002_conservation_view

-- Tells this home database from every other one that may use the same participants.
ALTER TABLE tallyweir.installation
    ADD COLUMN installation_id text NOT NULL
        DEFAULT substring(replace(gen_random_uuid()::text, '-', '') FOR 12)
        CHECK (installation_id ~ '^[0-9a-f]{12}$');

-- After a restore the same epoch may be claimed again, by another driver.
ALTER TABLE tallyweir.epoch_claim
    ADD COLUMN nonce text NOT NULL
        DEFAULT substring(replace(gen_random_uuid()::text, '-', '') FOR 8)
        CHECK (nonce ~ '^[0-9a-f]{8}$');

-- The decision: the branches that a batch was committed with. Written in the publish
-- transaction, so that a branch is decided exactly when its batch is.
CREATE TABLE tallyweir.batch_branch (
    pipeline     text NOT NULL,
    sequence     bigint NOT NULL,
    branch       text NOT NULL,
    gid          text NOT NULL UNIQUE,
    -- When the branch was seen committed in its database; for readers only.
    committed_at timestamptz,
    PRIMARY KEY (pipeline, branch, sequence),
    FOREIGN KEY (pipeline, sequence) REFERENCES tallyweir.batch
);
CREATE INDEX batch_branch_unresolved
    ON tallyweir.batch_branch (pipeline, sequence) WHERE committed_at IS NULL;

-- The newest batch such that it and all before it are committed in every database.
CREATE VIEW tallyweir.visible_through AS
SELECT pipeline,
       coalesce(
           (
               SELECT min(sequence) - 1
               FROM tallyweir.batch_branch AS branch
               WHERE branch.pipeline = pipeline.pipeline
                 AND committed_at IS NULL
           ),
           last_sequence
       ) AS sequence
FROM tallyweir.pipeline;

-- The same as Kafka offsets: every event before next_offset is in its tables, in
-- whichever database they are.
CREATE VIEW tallyweir.visible_offset AS
SELECT pipeline,
       topic,
       partition,
       coalesce(
           (
               SELECT min(from_offset)
               FROM tallyweir.batch_partition AS covered
               WHERE covered.pipeline = progress.pipeline
                 AND covered.topic = progress.topic
                 AND covered.partition = progress.partition
                 AND covered.sequence > through.sequence
           ),
           next_offset
       ) AS next_offset
FROM tallyweir.partition_progress AS progress
JOIN tallyweir.visible_through AS through USING (pipeline);
