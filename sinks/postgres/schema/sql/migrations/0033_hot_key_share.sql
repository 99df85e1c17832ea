-- How much of what executors do is one key, which decides on their number.
-- depends: 0032_batch_usage

-- NULL where it was not known, as of every decision before this.
ALTER TABLE tallyweir.scaling_decision ADD COLUMN hot_key_share double precision;
