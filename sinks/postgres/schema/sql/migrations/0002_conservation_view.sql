-- The conservation law as a view: one row per batch and partition, `unaccounted` is 0
-- in each, or events are missing.
-- depends: 0001_ledger

CREATE VIEW tallyweir.conservation AS
SELECT pipeline,
       sequence,
       topic,
       partition,
       read,
       committed + duplicate + dead + late + expired + filtered AS accounted,
       read - (committed + duplicate + dead + late + expired + filtered)
           AS unaccounted
FROM tallyweir.batch_partition;
