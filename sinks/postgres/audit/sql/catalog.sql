-- The seen-ID catalog, compared with what the batches claimed.

-- name: runs
-- One row per run or chunk, in the order of the catalog's key, so that all rows of one
-- bucket come together. Only a chunk has "sequences".
SELECT bucket, sequence, oldest_sequence, chunk, chunks, ids, first, last,
       fingerprints, sequences, filter
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND NOT is_hidden
ORDER BY bucket, sequence, chunk;

-- name: covering_runs
SELECT bucket, sequence, oldest_sequence, fingerprints, sequences
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND NOT is_hidden
  AND first <= %(fingerprint)s
  AND last >= %(fingerprint)s
ORDER BY bucket, sequence;

-- name: claimed_ids
-- The IDs that each batch must have added: those of its committed and late events, and
-- of filtered events that corrected earlier ones.
SELECT part.sequence,
       (sum(part.committed + part.late) + coalesce(run.retracted, 0))::bigint AS ids,
       extract(epoch FROM batch.watermark_before)::bigint AS watermark_before_s,
       coalesce(run.disposition = 'upsert', false) AS may_correct
FROM tallyweir.batch_partition AS part
JOIN tallyweir.batch AS batch USING (pipeline, sequence)
LEFT JOIN tallyweir.batch_run AS run USING (pipeline, sequence)
JOIN tallyweir.standing_from AS standing USING (pipeline)
WHERE part.pipeline = %(pipeline)s
  AND part.sequence >= standing.sequence
GROUP BY part.sequence, batch.watermark_before, run.retracted, run.disposition
ORDER BY part.sequence;

-- name: catalog_size
SELECT count(*) AS runs,
       coalesce(sum(ids), 0)::bigint AS ids,
       count(DISTINCT bucket) AS buckets
FROM tallyweir.seen_id_run
WHERE pipeline = %(pipeline)s
  AND NOT is_hidden;

-- name: bucketed_rows
-- Appended events per batch and bucket of their event time, for the buckets that must
-- still exist.
WITH bounds AS ({bounds})
SELECT coalesce(
           again.sequence, b.sequences[width_bucket(r.kafka_offset, b.froms)]
       ) AS sequence,
       extract(epoch FROM date_bin(
           make_interval(secs => %(bucket_seconds)s),
           r.{event_time}::timestamptz,
           'epoch'::timestamptz
       ))::bigint AS bucket,
       count(*) AS ids
FROM {table} AS r
JOIN bounds AS b
    ON b.topic = r.kafka_topic
   AND b.partition = r.kafka_partition
LEFT JOIN unnest(
    %(again_topics)s::text[], %(again_partitions)s::integer[],
    %(again_offsets)s::bigint[], %(again_sequences)s::bigint[]
) AS again (topic, partition, kafka_offset, sequence)
    ON again.topic = r.kafka_topic
   AND again.partition = r.kafka_partition
   AND again.kafka_offset = r.kafka_offset
WHERE r.{event_time} >= to_timestamp(%(bucket_min)s)
GROUP BY 1, 2
HAVING coalesce(
    again.sequence, b.sequences[width_bucket(r.kafka_offset, b.froms)]
) IS NOT NULL;
