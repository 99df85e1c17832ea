-- What stays with a table when another takes its name. %(table)s is its quoted name.

-- name: left_behind
SELECT 'row-level security' AS what
FROM pg_class
WHERE oid = to_regclass(%(table)s)
  AND (relrowsecurity OR relforcerowsecurity)
UNION ALL
SELECT 'policy ' || polname
FROM pg_policy
WHERE polrelid = to_regclass(%(table)s)
UNION ALL
SELECT 'trigger ' || tgname
FROM pg_trigger
WHERE tgrelid = to_regclass(%(table)s)
  AND NOT tgisinternal
UNION ALL
SELECT 'rule ' || rulename
FROM pg_rewrite
WHERE ev_class = to_regclass(%(table)s)
UNION ALL
SELECT 'foreign key ' || conname
FROM pg_constraint
WHERE conrelid = to_regclass(%(table)s)
  AND contype = 'f'
UNION ALL
SELECT format('foreign key %%s of %%s', conname, conrelid::regclass)
FROM pg_constraint
WHERE confrelid = to_regclass(%(table)s)
  AND conrelid <> confrelid
  AND contype = 'f'
ORDER BY 1;
