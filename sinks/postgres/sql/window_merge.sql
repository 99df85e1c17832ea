-- name: keep_former_values
-- A window that readers may have taken for settled is about to change.
INSERT INTO {revisions} ({columns}, revised_in_sequence, revised_at)
SELECT {result_columns}, %(sequence)s, clock_timestamp()
FROM {target} AS result
WHERE result.pane <> 'early'
  AND EXISTS (
      SELECT FROM {staging} AS staged
      WHERE staged.tallyweir_attempt = ANY(%(attempts)s)
        AND {same_key}
  )

-- name: merge_window
WITH merged AS (
    INSERT INTO {state} AS state ({keys}, window_end, {partials})
    SELECT {keys}, window_end, {combined}
    FROM {staging}
    WHERE tallyweir_attempt = ANY(%(attempts)s)
    GROUP BY {keys}, window_end
    ON CONFLICT ({keys}) DO UPDATE SET {merged}
    RETURNING {keys}, window_end, {partials}
)
INSERT INTO {target} AS result (
    {keys}, window_end, {aggregates}, pane, final
)
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
    )
FROM merged
ON CONFLICT ({keys}) DO UPDATE SET {updates}

-- name: staged_rows
SELECT count(*)
FROM {staging}
WHERE tallyweir_attempt = ANY(%(attempts)s)

-- name: settle_windows
UPDATE {target}
SET pane = CASE WHEN pane = 'early' THEN 'on_time' ELSE pane END,
    final = window_end + %(allowed_lateness)s <= %(watermark_after)s
WHERE NOT final
  AND window_end <= %(watermark_after)s
  AND (pane = 'early' OR window_end + %(allowed_lateness)s <= %(watermark_after)s)

-- name: forget_settled_state
DELETE FROM {state}
WHERE window_end + %(allowed_lateness)s <= %(watermark_after)s
