-- Whether readers see everything of a partition up to an offset.

-- name: visible_offset
SELECT next_offset
FROM tallyweir.visible_offset
WHERE pipeline = %(pipeline)s
  AND topic = %(topic)s
  AND partition = %(partition)s;
