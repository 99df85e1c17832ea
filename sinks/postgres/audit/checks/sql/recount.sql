-- What Kafka must still hold of what the ledger says was read.

-- name: read_ranges
SELECT topic, partition, sequence, from_offset, until_offset, read
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
ORDER BY topic, partition, sequence;
