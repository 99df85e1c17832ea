-- The ranges that the ledger says were read, to compare with what Kafka still holds.

-- name: read_ranges
SELECT topic, partition, sequence, from_offset, until_offset, read
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
ORDER BY topic, partition, sequence;
