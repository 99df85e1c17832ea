-- Result tables whose rows are gone.

-- name: has_rows
SELECT EXISTS (SELECT FROM {table})

-- name: owed
-- The rows and batches that the ledger counts for a table. Rows that an upsert or an
-- erasure took away are subtracted. A window counts once per batch that changed it.
SELECT coalesce(sum(rows), 0)
           - (
               SELECT count(*)
               FROM tallyweir.replaced_row
               WHERE pipeline = %(pipeline)s
                 AND output_table = %(output_table)s
           )
           - (
               SELECT count(*)
               FROM tallyweir.erased_row
               WHERE pipeline = %(pipeline)s
                 AND kept_in = %(output_table)s
           )
           - (
               SELECT coalesce(sum(erased.rows), 0)
               FROM tallyweir.erased_result AS erased
               WHERE pipeline = %(pipeline)s
                 AND output_table = %(output_table)s
           ) AS rows,
       count(*) FILTER (WHERE rows > 0) AS batches
FROM tallyweir.batch_output
JOIN tallyweir.standing_from AS standing USING (pipeline)
WHERE pipeline = %(pipeline)s
  AND output_table = %(output_table)s
  AND batch_output.sequence >= standing.sequence
  AND batch_output.sequence > coalesce(
      (
          SELECT max(through_sequence)
          FROM tallyweir.accepted_loss
          WHERE pipeline = %(pipeline)s
            AND output_table = %(output_table)s
      ),
      0
  )

-- name: marked
-- The rows that the markers of a participant count, over all its tables.
SELECT coalesce(sum(rows), 0)
FROM tallyweir_participant.marker
WHERE installation = %(installation)s
  AND pipeline_number = %(pipeline_number)s
  AND branch = ANY (%(branches)s)

-- name: accept
INSERT INTO tallyweir.accepted_loss (
    pipeline, output_table, through_sequence, rows, reason
)
VALUES (%(pipeline)s, %(output_table)s, %(through_sequence)s, %(rows)s, %(reason)s)

-- name: forget_windows
DELETE FROM {state}
