-- What a driver reads and writes to scale its pipeline, and what status shows of it.

-- name: read_bounds
SELECT executors_min, executors_max, batch_offsets_min, batch_offsets_max
FROM tallyweir.scaling_bounds
WHERE pipeline = %(pipeline)s

-- name: newest_decision
SELECT executors, batch_offsets
FROM tallyweir.scaling_decision
WHERE pipeline = %(pipeline)s
ORDER BY decision DESC
LIMIT 1

-- name: record_decision
INSERT INTO tallyweir.scaling_decision (
    pipeline, epoch, executors, executors_before, batch_offsets, batch_offsets_before,
    because, reason, executors_min, executors_max, batch_offsets_min,
    batch_offsets_max, executors_wanted, executors_there, executor_cores, tasks_max,
    connections_max, backlog, backlog_s, arrival_rate, expected_rate, rate, busy,
    hot_key_share
)
VALUES (
    %(pipeline)s, %(epoch)s, %(executors)s, %(executors_before)s, %(batch_offsets)s,
    %(batch_offsets_before)s, %(because)s, %(reason)s, %(executors_min)s,
    %(executors_max)s, %(batch_offsets_min)s, %(batch_offsets_max)s,
    %(executors_wanted)s, %(executors_there)s, %(executor_cores)s, %(tasks_max)s,
    %(connections_max)s, %(backlog)s, %(backlog_s)s, %(arrival_rate)s,
    %(expected_rate)s, %(rate)s, %(busy)s, %(hot_key_share)s
)

-- name: free_connections
-- Connections that the pipeline's own sessions use or may use: all except the reserved
-- ones and those that other sessions have open.
SELECT current_setting('max_connections')::integer
       - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true)::integer, 0)
       - (
           SELECT count(*)::integer
           FROM pg_stat_activity
           WHERE backend_type = 'client backend'
             AND application_name IS DISTINCT FROM %(application_name)s
       )

-- name: newest_decisions
SELECT decided_at, epoch, executors, executors_before, executors_there,
       executors_wanted, batch_offsets, batch_offsets_before, because, reason,
       tasks_max, connections_max, backlog, backlog_s, arrival_rate, expected_rate,
       rate, busy, hot_key_share
FROM tallyweir.scaling_decision
WHERE pipeline = %(pipeline)s
ORDER BY decision DESC
LIMIT %(limit)s
