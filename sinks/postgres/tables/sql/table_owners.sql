-- Which pipeline a result table belongs to.

-- name: hold_claims
-- The same rows may have two names, which are two keys, so pipelines claim in turn.
SELECT pg_advisory_xact_lock(hashtextextended('tallyweir result tables', 0))

-- name: claims_holder
-- Finds the process that keeps others from claiming, and those that it waits for.
SELECT held.pid, usename::text, application_name, xact_start, pg_blocking_pids(held.pid)
FROM pg_locks AS held
JOIN pg_stat_activity AS activity ON activity.pid = held.pid
CROSS JOIN hashtextextended('tallyweir result tables', 0) AS key
WHERE held.granted
  AND locktype = 'advisory'
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (held.classid::bigint << 32 | held.objid::bigint) = key
  AND held.objsubid = 1
  AND held.pid <> pg_backend_pid()

-- name: claim
-- Claims in one order, so that no two pipelines wait for each other.
INSERT INTO tallyweir_state.result_table (relation, installation, pipeline)
SELECT relation, %(installation)s, %(pipeline)s
FROM unnest(%(relations)s::text[]) AS written (relation)
ORDER BY relation
ON CONFLICT DO NOTHING
RETURNING relation

-- name: elsewhere
-- Finds a table in another schema that a name without a schema may mean: in any schema
-- if public has no such table, otherwise in one that a login searches before public.
SELECT nspname, meant.relation IS NOT NULL
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
CROSS JOIN to_regclass(format('public.%%I', %(table)s::text)) AS meant (relation)
WHERE relname = %(table)s
  AND relkind IN ('r', 'p', 'v', 'm', 'f')
  AND nspname NOT IN ('public', 'information_schema')
  AND nspname !~ '^(pg_|tallyweir_)'
  AND NOT (nspname = 'tallyweir' AND relname = ANY (%(ledger)s::text[]))
  AND has_schema_privilege(pg_namespace.oid, 'USAGE')
  AND (
      nspname = 'tallyweir'
      OR %(is_new)s
      AND (
          meant.relation IS NULL
          OR EXISTS (
              SELECT
              FROM pg_roles
              WHERE rolname = nspname
                AND rolcanlogin
          )
          OR EXISTS (
              SELECT
              FROM pg_db_role_setting
              JOIN pg_database ON datname = current_database()
              CROSS JOIN unnest(setconfig) AS configured (setting)
              CROSS JOIN LATERAL (
                  SELECT string_to_array(
                      translate(split_part(setting, '=', 2), '" ', ''), ','
                  ) AS path
              ) AS searched
              WHERE setdatabase IN (0, pg_database.oid)
                AND starts_with(setting, 'search_path=')
                AND array_position(path, nspname::text)
                    < coalesce(array_position(path, 'public'), 1000)
          )
      )
  )
ORDER BY nspname
LIMIT 1

-- name: owned_by_others
-- Two names may share rows: a partition and its parent, a view and the table it shows.
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
-- Returns the other pipeline that owns a table of the home, if there is one.
SELECT pipeline
FROM tallyweir_state.result_table
CROSS JOIN tallyweir.installation
WHERE relation = %(relation)s
  AND (installation, pipeline) <> (installation_id, %(pipeline)s)
