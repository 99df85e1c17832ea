-- Whether an output kept the late events of a batch, as it was when that was published.
-- depends: 0035_rows_of_batches

-- late says how many there were; what becomes of them is up to the definition, and that
-- changes. A batch is held against the definition that it was published under.
ALTER TABLE tallyweir.batch_output ADD COLUMN late_kept boolean;

-- Batches from before are taken to be of the definition that is in force now, as verify
-- took all of them so far. Without late events it makes no difference. NULL is also what
-- a driver of an older version writes after this; verify still takes such a batch so.
UPDATE tallyweir.batch_output AS output
SET late_kept = NOT EXISTS (
    SELECT
    FROM jsonb_array_elements(pipeline.definition -> 'outputs') AS defined
    WHERE defined ->> 'table' = output.output_table
      AND defined ->> 'late' = 'drop'
)
FROM tallyweir.pipeline AS pipeline
WHERE pipeline.pipeline = output.pipeline
  AND output.late > 0;
