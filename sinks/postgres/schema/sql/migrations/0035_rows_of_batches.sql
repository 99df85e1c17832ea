-- Rows of events refer to their batch by its number alone; branches find theirs faster.
-- depends: 0034_discarded_pipelines

-- A foreign key looks for the batch of each row that is written, though the transaction
-- that writes the row writes the batch as well; and it looks through all rows of the
-- pipeline for each batch that is deleted, hours where millions were put aside. verify
-- holds these rows against the ledger, those that name no batch as well.
ALTER TABLE tallyweir.dead_letter DROP CONSTRAINT dead_letter_pipeline_sequence_fkey;
ALTER TABLE tallyweir.late_event DROP CONSTRAINT late_event_pipeline_sequence_fkey;
ALTER TABLE tallyweir.expired_event DROP CONSTRAINT expired_event_pipeline_sequence_fkey;
ALTER TABLE tallyweir.duplicate_event
    DROP CONSTRAINT duplicate_event_pipeline_sequence_fkey;
ALTER TABLE tallyweir.filtered_event
    DROP CONSTRAINT filtered_event_pipeline_sequence_fkey;
ALTER TABLE tallyweir.replaced_row DROP CONSTRAINT replaced_row_pipeline_sequence_fkey;
ALTER TABLE tallyweir.outbox DROP CONSTRAINT outbox_pipeline_sequence_fkey;
ALTER TABLE tallyweir.keyed_state DROP CONSTRAINT keyed_state_pipeline_sequence_fkey;
ALTER TABLE tallyweir.keyed_timer DROP CONSTRAINT keyed_timer_pipeline_sequence_fkey;

-- A row per branch of a batch, which refers to it as before.
CREATE INDEX batch_branch_by_batch ON tallyweir.batch_branch (pipeline, sequence);
