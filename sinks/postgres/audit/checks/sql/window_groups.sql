-- Groups of a window output, as each of its databases names them.

-- name: groups
-- Ordered by bytes, as whoever merges the answers of several databases compares. With
-- discarding panes a group has several rows.
SELECT DISTINCT ROW(extract(epoch FROM window_start), {keys})::text COLLATE "C" AS name
FROM {table}
ORDER BY 1;
