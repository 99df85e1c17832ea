-- Recomputes the conservation law from the ledger's counts. If the query returns no
-- row, every record that was read is accounted for. The view tallyweir.conservation
-- shows the same sums for every batch.

-- name: broken_conservation
SELECT sequence,
       topic,
       partition,
       read,
       committed + duplicate + dead + late + expired + filtered AS accounted
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND read <> committed + duplicate + dead + late + expired + filtered
ORDER BY sequence, topic, partition;
