-- name: move_append
INSERT INTO {target} ({columns})
SELECT {sources}
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])

-- name: count_copied
-- Receipts of rows that tasks have copied into the table themselves.
SELECT count(*), coalesce(sum(copied_rows), 0)
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
