-- The staged rows of windows that came in several parts.

-- name: windows_in_parts
SELECT array_agg(ctid::text), {sketches}
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
GROUP BY {keys}, window_end
HAVING count(*) > 1

-- name: put_joined
UPDATE {staging}
SET {columns}
WHERE ctid = ANY(%(places)s::tid[])
