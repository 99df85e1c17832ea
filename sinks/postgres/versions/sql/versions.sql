-- Versions of pipelines.

-- name: versions
SELECT version, definition, definition_hash, layout, held, file_text, from_sequence,
       epoch, is_announced, reason, rolls_back_to, watched_batches, made_by, made_at
FROM tallyweir.pipeline_version
WHERE pipeline = %(pipeline)s
ORDER BY version DESC;

-- name: are_there
SELECT to_regclass('tallyweir.pipeline_version') IS NOT NULL

-- name: in_force
SELECT version, definition, definition_hash, layout, held, file_text, from_sequence,
       epoch, is_announced, reason, rolls_back_to, watched_batches, made_by, made_at
FROM tallyweir.pipeline_version
WHERE pipeline = %(pipeline)s
ORDER BY version DESC
LIMIT 1;

-- name: was_superseded
-- Whether an announced version came into force after the last version that was the same
-- as this one.
SELECT coalesce(
    max(version) FILTER (WHERE definition_hash = %(definition_hash)s)
        < max(version) FILTER (WHERE is_announced),
    false
)
FROM tallyweir.pipeline_version
WHERE pipeline = %(pipeline)s;

-- name: add_version
INSERT INTO tallyweir.pipeline_version (
    pipeline, version, definition, definition_hash, layout, held, file_text,
    from_sequence, epoch, is_announced, reason, rolls_back_to, watched_batches,
    made_by
)
SELECT
    %(pipeline)s, coalesce(max(version), 0) + 1, %(definition)s, %(definition_hash)s,
    %(layout)s, %(held)s, %(file_text)s, %(from_sequence)s, %(epoch)s,
    %(is_announced)s, %(reason)s, %(rolls_back_to)s, %(watched_batches)s,
    tallyweir.actor()
FROM tallyweir.pipeline_version
WHERE pipeline = %(pipeline)s
RETURNING version;

-- name: tell_layout
UPDATE tallyweir.pipeline_version
SET layout = %(layout)s,
    file_text = %(file_text)s
WHERE pipeline = %(pipeline)s
  AND version = %(version)s;

-- name: put_definition
UPDATE tallyweir.pipeline
SET definition = %(definition)s,
    definition_hash = %(definition_hash)s
WHERE pipeline = %(pipeline)s;

-- name: put_held
UPDATE tallyweir.pipeline_version
SET held = %(held)s
WHERE pipeline = %(pipeline)s
  AND version = %(version)s;

-- name: forget_samples
DELETE FROM tallyweir.sample
WHERE pipeline = %(pipeline)s;
