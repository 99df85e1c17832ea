-- The newest result of verify.

-- name: note
INSERT INTO tallyweir.receipt (pipeline, is_verified, summary, batches)
VALUES (%(pipeline)s, %(is_verified)s, %(summary)s, %(batches)s)
ON CONFLICT (pipeline) DO UPDATE
SET is_verified = EXCLUDED.is_verified,
    summary = EXCLUDED.summary,
    batches = EXCLUDED.batches,
    taken_at = EXCLUDED.taken_at,
    taken_by = EXCLUDED.taken_by;

-- name: receipts
SELECT pipeline, is_verified, summary, batches, taken_at, taken_by
FROM tallyweir.receipt;
