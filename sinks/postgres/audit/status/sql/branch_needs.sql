-- What the registered pipelines publish beside the home's own transaction.

-- name: definitions
SELECT pipeline_number, definition
FROM tallyweir.pipeline
ORDER BY pipeline_number
