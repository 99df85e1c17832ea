-- The definitions of the registered pipelines, to find what they publish in branches.

-- name: definitions
SELECT pipeline_number, definition
FROM tallyweir.pipeline
ORDER BY pipeline_number
