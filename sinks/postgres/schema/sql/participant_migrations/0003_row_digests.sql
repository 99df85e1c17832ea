-- What the rows were that a branch put into its tables, so that verify finds a changed
-- one: by table, as in the home's tallyweir.batch_output. NULL in markers from before.
-- depends: 0002_state_schema
ALTER TABLE tallyweir_participant.marker ADD COLUMN digests jsonb;
