-- The definitions that a pipeline ran as, to rename its tables in them.

-- name: definition
SELECT definition
FROM tallyweir.pipeline
WHERE pipeline = %(pipeline)s;

-- name: set_definition
UPDATE tallyweir.pipeline
SET definition = %(definition)s,
    definition_hash = %(definition_hash)s
WHERE pipeline = %(pipeline)s;

-- name: versions
SELECT version, definition, layout, held
FROM tallyweir.pipeline_version
WHERE pipeline = %(pipeline)s;

-- name: set_version
UPDATE tallyweir.pipeline_version
SET definition = %(definition)s,
    definition_hash = %(definition_hash)s,
    layout = %(layout)s,
    held = %(held)s
WHERE pipeline = %(pipeline)s
  AND version = %(version)s;
