-- Groups of a window output, as each of its databases names them.

-- name: groups
-- Ordered by bytes, as the Python code that merges several databases compares names.
-- With discarding panes a group has several rows.
SELECT DISTINCT ROW(extract(epoch FROM window_start), {keys})::text COLLATE "C" AS name
FROM {table}
ORDER BY 1;
