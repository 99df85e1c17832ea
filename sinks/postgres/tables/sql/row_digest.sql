-- Digests of the rows that a statement changes.

-- name: digested
WITH changed AS (
    {change}
    RETURNING {hash} AS hash
)
SELECT count(*), coalesce(sum(hash), 0)
FROM changed
