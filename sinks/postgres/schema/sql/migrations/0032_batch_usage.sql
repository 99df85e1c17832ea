-- What batches have measured, for those who add it up.
-- depends: 0031_gauges

-- Without hot keys, which may be shown as they are where a pipeline says so.
CREATE VIEW tallyweir.batch_usage AS
SELECT pipeline, sequence, measures - 'hot_keys' AS measures
FROM tallyweir.batch_measures;
