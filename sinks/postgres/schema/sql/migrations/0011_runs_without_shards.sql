-- IDs are claimed from one holder, so a run is of all of them; each task of a batch adds
-- a run of its own.
-- depends: 0010_upsert

-- Runs of several shards stay what they are: sorted, of one bucket and one batch.
ALTER TABLE tallyweir.seen_id_run
    DROP CONSTRAINT seen_id_run_pkey,
    DROP COLUMN shard,
    ADD PRIMARY KEY (pipeline, bucket, sequence, first);
