-- The acts on a pipeline, and the forks that work in its shadow.

-- name: acts
SELECT act.epoch, act.kind, act.reason, act.after_sequence, act.detail, act.done_by,
       act.done_at, pause.resumed_by, pause.resumed_at
FROM tallyweir.act AS act
LEFT JOIN tallyweir.pause AS pause USING (pipeline, epoch)
WHERE act.pipeline = %(pipeline)s
  AND (%(before)s::bigint IS NULL OR act.epoch < %(before)s)
ORDER BY act.epoch DESC
LIMIT %(limit)s;

-- name: forks
-- Only the pipeline in front has the tables that readers know as its outputs.
SELECT shadow.pipeline,
       json_agg(
           json_build_array(shadow.front_table, shadow.shadow_table)
           ORDER BY shadow.front_table
       ) AS tables,
       pipeline.last_sequence,
       (
           SELECT coalesce(
                      sum(greatest(front.next_offset - coalesce(own.next_offset, 0), 0)), 0
                  )::bigint
           FROM tallyweir.partition_progress AS front
           LEFT JOIN tallyweir.partition_progress AS own
               ON own.pipeline = shadow.pipeline
              AND own.topic = front.topic
              AND own.partition = front.partition
           WHERE front.pipeline = %(pipeline)s
       ) AS behind
FROM tallyweir.shadow_table AS shadow
JOIN tallyweir.pipeline AS pipeline USING (pipeline)
WHERE shadow.pipeline <> %(pipeline)s
  AND shadow.front_table = ANY (%(tables)s)
GROUP BY shadow.pipeline, pipeline.last_sequence
ORDER BY shadow.pipeline;
