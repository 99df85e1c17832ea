-- name: add_sequence_index
-- Serves verify, which counts the rows of each batch.
CREATE INDEX ON {target} (tallyweir_sequence)

-- name: move_results
INSERT INTO {target} ({columns}, tallyweir_sequence)
SELECT {sources}, %(sequence)s
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
