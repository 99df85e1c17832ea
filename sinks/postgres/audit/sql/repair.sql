-- Where the histories of a home database and of a participant diverge.

-- name: marked_branches
SELECT DISTINCT branch
FROM tallyweir_participant.marker
WHERE installation = %(installation)s
  AND pipeline_number = %(pipeline_number)s

-- name: decided_branches
SELECT DISTINCT branch
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s

-- name: markers_before
SELECT sequence, gid, prepared_at AS at, rows
FROM tallyweir_participant.marker
WHERE installation = %(installation)s
  AND pipeline_number = %(pipeline_number)s
  AND branch = %(branch)s
  AND sequence < %(before)s
ORDER BY sequence DESC
LIMIT %(page)s

-- name: decided_sequences
SELECT gid
FROM tallyweir.batch_branch
WHERE pipeline = %(pipeline)s
  AND gid = ANY(%(gids)s)

-- name: decisions_after
SELECT sequence, gid, published_at AS at, NULL::bigint AS rows
FROM tallyweir.batch_branch
JOIN tallyweir.batch USING (pipeline, sequence)
WHERE pipeline = %(pipeline)s
  AND branch = %(branch)s
  AND sequence > %(after)s
ORDER BY sequence

-- name: offsets_of
SELECT topic, partition, min(from_offset) AS first, max(until_offset) AS until
FROM tallyweir.batch_partition
WHERE pipeline = %(pipeline)s
  AND sequence = ANY(%(sequences)s)
  AND until_offset > from_offset
GROUP BY topic, partition
ORDER BY topic, partition

-- name: positions_beyond
kafka_topic = {topic}
  AND kafka_offset >= CASE kafka_partition {cases} ELSE 0 END

-- name: position_case
WHEN {partition} THEN {next_offset}

-- name: count_rows
SELECT count(*) AS rows
FROM {table}
WHERE {positions}

-- name: example_rows
SELECT kafka_topic, kafka_partition, kafka_offset
FROM {table}
WHERE {positions}
ORDER BY kafka_topic, kafka_partition, kafka_offset
LIMIT {limit}

-- name: delete_rows
DELETE FROM {table}
WHERE {positions};

-- name: delete_markers
DELETE FROM tallyweir_participant.marker
WHERE installation = {installation}
  AND pipeline_number = {pipeline_number}
  AND gid = ANY({gids});
