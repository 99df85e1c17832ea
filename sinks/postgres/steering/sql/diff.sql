-- Compares a pipeline and its fork, output by output.
-- {ours} and {theirs} are the two tables. {keys} identify rows; {said} is what else
-- both have, as JSON. {bound} leaves out rows that only one of the two can have yet.

-- name: shared_columns
-- Leaves out columns drawn from a sequence, as each table draws its own values.
WITH drawn AS (
    SELECT attname
    FROM pg_attribute
    WHERE attrelid = ANY (ARRAY[to_regclass(%(ours)s), to_regclass(%(theirs)s)])
      AND attidentity <> ''
    UNION ALL
    SELECT attname
    FROM pg_attrdef
    JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
    JOIN pg_depend
        ON classid = 'pg_attrdef'::regclass
       AND objid = pg_attrdef.oid
       AND refclassid = 'pg_class'::regclass
    JOIN pg_class ON pg_class.oid = refobjid AND relkind = 'S'
    WHERE adrelid = ANY (ARRAY[to_regclass(%(ours)s), to_regclass(%(theirs)s)])
)
SELECT ours.attname AS name
FROM pg_attribute AS ours
JOIN pg_attribute AS theirs
    ON theirs.attrelid = to_regclass(%(theirs)s)
   AND theirs.attname = ours.attname
   AND theirs.atttypid = ours.atttypid
   AND theirs.attnum > 0
   AND NOT theirs.attisdropped
WHERE ours.attrelid = to_regclass(%(ours)s)
  AND ours.attnum > 0
  AND NOT ours.attisdropped
  AND ours.attname NOT IN (SELECT attname FROM drawn)
ORDER BY ours.attnum;

-- name: both_read
SELECT topic, partition, min(next_offset) AS next_offset,
       max(next_offset) - min(next_offset) AS apart
FROM tallyweir.partition_progress
WHERE pipeline IN (%(front)s, %(shadowing)s)
GROUP BY topic, partition
HAVING count(*) = 2
ORDER BY topic, partition;

-- name: watermark
SELECT min(watermark) AS watermark
FROM tallyweir.pipeline
WHERE pipeline IN (%(front)s, %(shadowing)s);

-- name: columns
SELECT attname AS name
FROM pg_attribute
WHERE attrelid = ANY (ARRAY[to_regclass(%(ours)s), to_regclass(%(theirs)s)])
  AND attnum > 0
  AND NOT attisdropped;

-- name: read_by_both
EXISTS (
    SELECT
    FROM unnest(%(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[])
        AS ends (topic, partition, next_offset)
    WHERE kept.kafka_topic = ends.topic
      AND kept.kafka_partition = ends.partition
      AND kept.kafka_offset < ends.next_offset
)

-- name: settled
kept.final AND kept.window_end <= %(watermark)s

-- name: compared
-- Counts equal rows, because a table without a key may have a row twice.
WITH ours AS (
    SELECT {keys} AS key, {said} AS said, count(*) AS rows
    FROM {ours} AS kept
    WHERE {bound}
    GROUP BY 1, 2
),
theirs AS (
    SELECT {keys} AS key, {said} AS said, count(*) AS rows
    FROM {theirs} AS kept
    WHERE {bound}
    GROUP BY 1, 2
),
odd AS (
    SELECT key, ours.said AS ours, theirs.said AS theirs,
           coalesce(ours.rows, 0) AS our_rows,
           coalesce(theirs.rows, 0) AS their_rows
    FROM ours
    FULL JOIN theirs USING (key, said)
),
-- Two unequal rows of one key, one on each side, count as one row that differs.
by_key AS (
    SELECT key,
           sum(least(our_rows, their_rows)) AS equal,
           sum(greatest(our_rows - their_rows, 0)) AS ours,
           sum(greatest(their_rows - our_rows, 0)) AS theirs,
           max(ours::text) FILTER (WHERE our_rows > their_rows) AS our_row,
           max(theirs::text) FILTER (WHERE their_rows > our_rows) AS their_row
    FROM odd
    GROUP BY key
),
judged AS (
    SELECT key, equal, our_row, their_row,
           least(ours, theirs) AS different,
           greatest(ours - theirs, 0) AS only_ours,
           greatest(theirs - ours, 0) AS only_theirs
    FROM by_key
)
SELECT coalesce(sum(equal), 0)::bigint AS equal,
       coalesce(sum(different), 0)::bigint AS different,
       coalesce(sum(only_ours), 0)::bigint AS only_front,
       coalesce(sum(only_theirs), 0)::bigint AS only_shadow,
       (
           SELECT coalesce(json_agg(sample), '[]')
           FROM (
               SELECT key, our_row AS front, their_row AS shadow
               FROM judged
               WHERE different + only_ours + only_theirs > 0
               ORDER BY key::text
               LIMIT %(samples)s
           ) AS sample
       ) AS samples
FROM judged;
