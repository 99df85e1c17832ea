-- The windows of a batch, merged with the stored ones that they touch.
--
-- Stored and staged windows are of one group if their keys are equal as records, in
-- which null equals null. Aligned windows touch if they begin at the same moment,
-- sessions if they overlap. Stored sessions of a group never overlap each other. A
-- final row has no state any more: its session is closed, and events that come too
-- close to it form a session of their own.

-- name: touched_windows
-- The condition that a stored window, or its row, is one of the staged windows.
-- Postgres has no hash join on records. Without their hashes, it would compare the
-- groups of one window in pairs.
EXISTS (
    SELECT FROM {staging} AS staged
    WHERE staged.xmin = ANY(%(transactions)s::xid[])
      AND staged.window_start = former.window_start
      AND hash_record({former_group}) = hash_record({staged_group})
      AND {former_group} = {staged_group}
)

-- name: touched_sessions
-- The condition that a stored session, or its row, overlaps a staged one: some staged
-- session begins before its end and lasts beyond its beginning. One pass in the order
-- of time finds that. A comparison in pairs would cost the open sessions of a group
-- times its staged ones.
former.ctid = ANY(ARRAY(
    SELECT place
    FROM (
        SELECT place,
               window_start,
               max(window_end) FILTER (WHERE place IS NULL) OVER (
                   -- A session that begins where a stored one ends does not overlap it.
                   PARTITION BY {by} ORDER BY at, place IS NULL
                   ROWS UNBOUNDED PRECEDING
               ) AS reached
        FROM (
            SELECT NULL::tid AS place,
                   {by},
                   window_start,
                   window_end,
                   window_start AS at
            FROM {staging}
            WHERE xmin = ANY(%(transactions)s::xid[])
            UNION ALL
            SELECT ctid, {by}, window_start, window_end, window_end
            FROM {stored}
            WHERE {can_change}
              AND hash_record(ROW({by})) IN (
                  SELECT hash_record(ROW({by}))
                  FROM {staging}
                  WHERE xmin = ANY(%(transactions)s::xid[])
              )
        ) AS sessions
    ) AS passed
    WHERE place IS NOT NULL AND reached > window_start
))

-- name: keep_former_rows
-- Keeps the rows that are about to change and that readers may have taken for settled.
INSERT INTO {revisions} ({columns}, revised_in_sequence, revised_at)
SELECT {former_columns}, %(sequence)s, clock_timestamp()
FROM {target} AS former
WHERE former.pane <> 'early'
  AND NOT former.final
  AND {touched}

-- name: take_rows
DELETE FROM {target} AS former
WHERE NOT former.final
  AND {touched}

-- name: take_state
-- Adds the touched windows to the staged ones, to be merged like them. Rows of the
-- publish transaction itself count as voted for.
WITH touched AS (
    DELETE FROM {state} AS former
    WHERE {touched}
    RETURNING {staged_columns}
)
INSERT INTO {staging} ({staged_columns})
SELECT {staged_columns}
FROM touched

-- name: join_sessions
-- Gaps and islands: a session begins where no earlier one of its group reaches. All its
-- parts get its beginning and end, and are one window from here on.
WITH parts AS (
    SELECT ctid AS place,
           {by},
           window_start,
           window_end,
           coalesce(window_start >= max(window_end) OVER (
               PARTITION BY {by} ORDER BY window_start, window_end
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ), true) AS begins
    FROM {staging}
    WHERE xmin = ANY(%(transactions)s::xid[])
),
numbered AS (
    SELECT place,
           {by},
           window_start,
           window_end,
           count(*) FILTER (WHERE begins) OVER (
               PARTITION BY {by} ORDER BY window_start, window_end
               ROWS UNBOUNDED PRECEDING
           ) AS session
    FROM parts
),
spans AS (
    SELECT place,
           min(window_start) OVER joined AS window_start,
           max(window_end) OVER joined AS window_end
    FROM numbered
    WINDOW joined AS (PARTITION BY {by}, session)
)
UPDATE {staging} AS staged
SET window_start = spans.window_start,
    window_end = spans.window_end
FROM spans
WHERE staged.ctid = spans.place
  AND (staged.window_start, staged.window_end)
      <> (spans.window_start, spans.window_end)

-- name: merge_state
INSERT INTO {state} AS state ({keys}, window_end, {partials})
SELECT {keys}, window_end, {combined}
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
GROUP BY {keys}, window_end
ON CONFLICT ({keys}) DO UPDATE SET {merged}
RETURNING {keys}, window_end, {partials}

-- name: release_state
-- Releases the windows whose events must be shown now.
UPDATE {state}
SET tallyweir_waiting_since = NULL
WHERE window_end <= %(watermark_after)s AND tallyweir_waiting_since IS NOT NULL
   OR tallyweir_waiting_since + %(early)s::interval <= %(planned_at)s
RETURNING {keys}, window_end, {partials}

-- name: spend_state
-- The same for an output whose rows each show other events: the state is spent.
DELETE FROM {state}
WHERE window_end <= %(watermark_after)s
   OR tallyweir_waiting_since + %(early)s::interval <= %(planned_at)s
RETURNING {keys}, window_end, {partials}

-- name: show_windows
WITH shown AS ({source})
{put}

-- name: show_counted
-- The same. Also returns how many rows there were to show, how many the table has
-- taken, and their digest.
WITH shown AS ({source}),
changed AS (
    {put}
    RETURNING {hash} AS hash
)
SELECT (SELECT count(*) FROM shown), count(*), coalesce(sum(hash), 0)
FROM changed

-- name: put_shown
INSERT INTO {target} ({keys}, window_end, {aggregates}, pane, final{pane_number})
SELECT
    {keys},
    window_end,
    {finals},
    CASE
        WHEN window_end <= %(watermark_before)s THEN 'late'
        WHEN window_end <= %(watermark_after)s THEN 'on_time'
        ELSE 'early'
    END,
    coalesce(
        window_end + %(allowed_lateness)s <= %(watermark_after)s, false
    ){pane_number_value}
FROM shown
ON CONFLICT ({result_keys}) DO UPDATE SET {updates}

-- name: settle_windows
UPDATE {target}
SET pane = CASE WHEN pane = 'early' THEN 'on_time' ELSE pane END,
    final = window_end + %(allowed_lateness)s <= %(watermark_after)s
WHERE NOT final
  AND window_end <= %(watermark_after)s
  AND (pane = 'early' OR window_end + %(allowed_lateness)s <= %(watermark_after)s)

-- name: close_panes
UPDATE {target}
SET final = true
WHERE NOT final
  AND window_end + %(allowed_lateness)s <= %(watermark_after)s

-- name: forget_settled_state
DELETE FROM {state}
WHERE window_end + %(allowed_lateness)s <= %(watermark_after)s

-- name: windows_in_parts
-- The staged rows of windows that came in several parts.
SELECT array_agg(ctid::text), {sketches}
FROM {staging}
WHERE xmin = ANY(%(transactions)s::xid[])
GROUP BY {keys}, window_end
HAVING count(*) > 1

-- name: put_joined
UPDATE {staging}
SET {columns}
WHERE ctid = ANY(%(places)s::tid[])
