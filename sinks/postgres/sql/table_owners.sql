-- Which pipeline a result table belongs to.

-- name: claim
-- In one order, so that no two pipelines wait for each other.
INSERT INTO tallyweir_state.result_table (relation, installation, pipeline)
SELECT relation, %(installation)s, %(pipeline)s
FROM unnest(%(relations)s::text[]) AS written (relation)
ORDER BY relation
ON CONFLICT DO NOTHING

-- name: owned_by_others
-- Two names may be one table: a partition and the whole, a view and what it shows.
WITH RECURSIVE holds (relation, installation, pipeline, claimed_at, held) AS (
    SELECT relation, installation, pipeline, claimed_at,
           to_regclass(
               format(
                   '%%I.%%I', split_part(relation, '.', 1), split_part(relation, '.', 2)
               )
           )::oid
    FROM tallyweir_state.result_table
    UNION
    SELECT relation, installation, pipeline, claimed_at, below.oid
    FROM holds
    CROSS JOIN LATERAL (
        SELECT inhrelid
        FROM pg_inherits
        WHERE inhparent = held
        UNION ALL
        SELECT refobjid
        FROM pg_rewrite
        JOIN pg_depend
            ON classid = 'pg_rewrite'::regclass
           AND objid = pg_rewrite.oid
           AND refclassid = 'pg_class'::regclass
        WHERE ev_class = held
    ) AS below (oid)
)
SELECT ours.relation, theirs.relation, theirs.pipeline,
       theirs.installation, theirs.claimed_at
FROM holds AS ours
JOIN holds AS theirs
    ON theirs.relation = ours.relation
    OR theirs.held = ours.held
WHERE ours.relation = ANY (%(relations)s::text[])
  AND (
      (theirs.installation, theirs.pipeline) <> (%(installation)s, %(pipeline)s)
      OR theirs.relation <> ours.relation
      AND theirs.relation = ANY (%(relations)s::text[])
  )
ORDER BY 1, 2
LIMIT 1

-- name: release
DELETE FROM tallyweir_state.result_table
WHERE installation = %(installation)s
  AND pipeline = %(pipeline)s
  AND relation <> ALL (%(relations)s::text[])

-- name: rename
UPDATE tallyweir_state.result_table
SET relation = %(to)s
FROM tallyweir.installation
WHERE installation = installation_id
  AND pipeline = %(pipeline)s
  AND relation = %(from)s

-- name: owner
-- Of a table of the home that another pipeline has.
SELECT pipeline
FROM tallyweir_state.result_table
CROSS JOIN tallyweir.installation
WHERE relation = %(relation)s
  AND (installation, pipeline) <> (installation_id, %(pipeline)s)
