-- The newest rows of each step.

-- name: samples
SELECT sample.step, sample.output_table, sample.sequence, batch.published_at,
       sample.redacted, sample.rows
FROM tallyweir.sample AS sample
JOIN tallyweir.batch AS batch USING (pipeline, sequence)
WHERE sample.pipeline = %(pipeline)s
ORDER BY array_position(%(order)s::text[], sample.step), sample.output_table;
