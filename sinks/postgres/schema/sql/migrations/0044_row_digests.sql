-- What the rows were that a batch put into a table, so that verify finds a changed one.
-- depends: 0037_buckets_attached

-- By what they are: {"results": {"rows": 2, "sum": ...}}, the sum of the hashes of the
-- rows. Of windows these are the ones that the batch settled, and {"revisions": ...} are
-- the former rows that it kept. What other transactions of the batch have put into
-- tables is in their markers. NULL in batches from before this.
ALTER TABLE tallyweir.batch_output ADD COLUMN digests jsonb;
