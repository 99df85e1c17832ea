-- Keyed state: what verify counts, and what a person can look at.

-- name: results_by_batch
-- Includes erased results, because their batches did produce them.
SELECT sequence, sum(rows)::bigint AS found
FROM (
    SELECT tallyweir_sequence AS sequence, 1 AS rows
    FROM {table}
    UNION ALL
    SELECT sequence, rows
    FROM tallyweir.erased_result
    WHERE pipeline = %(pipeline)s
      AND output_table = %(output_table)s
) AS result
GROUP BY sequence;

-- name: claimed_results
SELECT sequence, rows
FROM tallyweir.batch_output
WHERE pipeline = %(pipeline)s
  AND output_table = %(output_table)s
  AND kind = 'stateful';

-- name: state_of_key
SELECT output_table, key, name, entry, value::text AS value, schema_version,
       expires_at, sequence
FROM tallyweir.keyed_state
WHERE pipeline = %(pipeline)s
  AND key = ANY(%(keys)s)
ORDER BY output_table, key, name, entry;

-- name: timers_of_key
SELECT output_table, key, name, clock, fires_at, sequence
FROM tallyweir.keyed_timer
WHERE pipeline = %(pipeline)s
  AND key = ANY(%(keys)s)
ORDER BY output_table, key, fires_at, name;
