-- Sessions of a batch, merged with the stored ones that they overlap.
--
-- Stored sessions of a group never overlap each other, so one is touched by the batch
-- exactly when it overlaps a staged one. Groups are compared as records, in which null
-- equals null, and by hash. A row that is final has no state any more: its session is
-- closed, and what comes too close to it makes a session of its own.

-- name: keep_former_sessions
INSERT INTO {revisions} ({columns}, revised_in_sequence, revised_at)
SELECT {result_columns}, %(sequence)s, clock_timestamp()
FROM {target} AS result
WHERE result.pane <> 'early'
  AND NOT result.final
  AND EXISTS (
      SELECT FROM {staging} AS staged
      WHERE staged.tallyweir_attempt = ANY(%(attempts)s)
        AND {result_group} = {staged_group}
        AND staged.window_start < result.window_end
        AND result.window_start < staged.window_end
  )

-- name: take_session_rows
DELETE FROM {target} AS result
WHERE NOT result.final
  AND EXISTS (
      SELECT FROM {staging} AS staged
      WHERE staged.tallyweir_attempt = ANY(%(attempts)s)
        AND {result_group} = {staged_group}
        AND staged.window_start < result.window_end
        AND result.window_start < staged.window_end
  )

-- name: take_sessions
-- Puts the touched sessions beside the staged ones, to be merged like them.
WITH touched AS (
    DELETE FROM {state} AS result
    WHERE EXISTS (
        SELECT FROM {staging} AS staged
        WHERE staged.tallyweir_attempt = ANY(%(attempts)s)
          AND {result_group} = {staged_group}
          AND staged.window_start < result.window_end
          AND result.window_start < staged.window_end
    )
    RETURNING {staged_columns}
)
INSERT INTO {staging} (tallyweir_attempt, {staged_columns})
SELECT (%(attempts)s::bigint[])[1], {staged_columns}
FROM touched

-- name: merge_sessions
-- Gaps and islands: a session begins where no former one of its group reaches.
WITH parts AS (
    SELECT {staged_columns},
           coalesce(window_start >= max(window_end) OVER (
               PARTITION BY {group} ORDER BY window_start, window_end
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ), true) AS tallyweir_begins
    FROM {staging}
    WHERE tallyweir_attempt = ANY(%(attempts)s)
),
numbered AS (
    SELECT {staged_columns},
           count(*) FILTER (WHERE tallyweir_begins) OVER (
               PARTITION BY {group} ORDER BY window_start, window_end
               ROWS UNBOUNDED PRECEDING
           ) AS tallyweir_session
    FROM parts
),
merged AS (
    INSERT INTO {state} ({keys}, window_end, {partials})
    SELECT min(window_start), {group_columns} max(window_end), {combined}
    FROM numbered
    GROUP BY {group_columns} tallyweir_session
    RETURNING {keys}, window_end, {partials}
)
INSERT INTO {target} ({keys}, window_end, {aggregates}, pane, final)
SELECT
    {keys},
    window_end,
    {finals},
    CASE
        WHEN window_end <= %(watermark_before)s THEN 'late'
        WHEN window_end <= %(watermark_after)s THEN 'on_time'
        ELSE 'early'
    END,
    coalesce(window_end + %(allowed_lateness)s <= %(watermark_after)s, false)
FROM merged
