-- name: count_staged
SELECT count(*)
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
