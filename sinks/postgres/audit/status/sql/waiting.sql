-- What a pipeline holds back until event time has advanced.

-- name: windows
-- A group is open until the watermark has passed its window's end. Its state is kept
-- for as long as it may still be revised.
SELECT count(*) AS groups,
       coalesce(sum(tallyweir_events), 0)::bigint AS events,
       max(window_end) + %(allowed_lateness)s::interval AS closes_at
FROM {state_table};

-- name: timers
SELECT count(*) FILTER (WHERE clock = 'event') AS timers,
       max(fires_at) FILTER (WHERE clock = 'event') AS last_timer,
       count(*) FILTER (WHERE clock = 'processing') AS clock_timers
FROM tallyweir.keyed_timer
WHERE pipeline = %(pipeline)s;
