-- Runs of a bucket that are no longer added to are merged into chunks, in the same
-- table: so what drops or forgets a bucket's runs drops and forgets its chunks.
-- depends: 0011_runs_without_shards

ALTER TABLE tallyweir.seen_id_run
    -- Which part of the range of fingerprints a chunk has, of how many; -1 for a run.
    ADD COLUMN chunk integer NOT NULL DEFAULT -1,
    ADD COLUMN chunks integer,
    -- The batches of a bucket's chunks are from this one through "sequence".
    ADD COLUMN oldest_sequence bigint,
    -- Of each ID the batch that added it, 4 bytes, counted from the oldest.
    ADD COLUMN sequences bytea,
    -- The chunk's share of a Bloom filter over all chunks of the bucket.
    ADD COLUMN filter bytea,
    -- Written ahead of the transaction that puts it in the place of the runs.
    ADD COLUMN is_hidden boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT seen_id_run_pkey,
    ADD PRIMARY KEY (pipeline, bucket, sequence, chunk, first),
    ADD CHECK (chunk BETWEEN -1 AND chunks - 1),
    ADD CHECK (
        CASE chunk
            WHEN -1 THEN num_nonnulls(chunks, oldest_sequence, sequences, filter) = 0
                AND NOT is_hidden
            ELSE num_nulls(chunks, oldest_sequence, sequences, filter) = 0
                AND octet_length(sequences) = 4 * ids
                AND oldest_sequence <= sequence
        END
    );

-- Slices are read of what is neither compressed nor in the row.
ALTER TABLE tallyweir.seen_id_run
    ALTER COLUMN sequences SET STORAGE EXTERNAL,
    ALTER COLUMN filter SET STORAGE EXTERNAL;
