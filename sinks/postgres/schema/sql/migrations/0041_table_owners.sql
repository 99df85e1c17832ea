-- Which pipeline a result table belongs to.
-- depends: 0037_buckets_attached

-- Of one database, whether it is a pipeline's home, takes part in another home's
-- batches, or both: so it is where both may write, and may be there already.
CREATE TABLE IF NOT EXISTS tallyweir_state.result_table (
    -- As schema.table. The key decides between two pipelines that start at once.
    relation     text PRIMARY KEY,
    -- The home that knows the pipeline.
    installation text NOT NULL,
    pipeline     text NOT NULL,
    claimed_at   timestamptz NOT NULL DEFAULT now()
);

-- Where two pipelines have written one table, the older one has it.
INSERT INTO tallyweir_state.result_table (relation, installation, pipeline)
SELECT CASE WHEN position('.' IN written.name) > 0 THEN written.name
            ELSE 'public.' || written.name
       END,
       installation_id, pipeline
FROM tallyweir.pipeline
CROSS JOIN tallyweir.installation
CROSS JOIN jsonb_array_elements(definition -> 'outputs') AS output (entry)
CROSS JOIN LATERAL (SELECT entry ->> 'table') AS written (name)
WHERE entry ->> 'kind' IS DISTINCT FROM 'outbox'
  AND coalesce(entry -> 'databases', '["home"]') ? 'home'
ORDER BY pipeline_number
ON CONFLICT DO NOTHING;
