// How each line of a chart comes about; docs/monitor.md says the same.

const GAUGES = `SELECT * FROM tallyweir.pipeline_gauge
WHERE pipeline = $1 AND at > now() - interval '30 min' ORDER BY at`;

const OF_BATCHES = `FROM tallyweir.batch
WHERE pipeline = $1 AND published_at > now() - interval '30 min' GROUP BY 1`;

const SLOT = "SELECT date_bin('10 s', published_at, 'epoch')";

const COUNTS = `${SLOT}, sum(read), sum(duplicate), sum(late), sum(dead)
FROM tallyweir.batch JOIN tallyweir.batch_partition USING (pipeline, sequence)
WHERE pipeline = $1 AND published_at > now() - interval '30 min' GROUP BY 1`;

export const CHART_FORMULAS = {
  chart_rate: { text: "Records read by the batches that were published in 10 s, divided by 10.", query: COUNTS },
  chart_counts: { text: "Records of the batches that were published in 10 s, by what became of them.", query: COUNTS },
  chart_latency: {
    text: "From when Kafka had a record, or its producer where the topic keeps that time, until right before the COMMIT with its event, by the home's clock; of the committed events. Each batch counts them in eighths of powers of two of a millisecond, so a percentile is at most a tenth off. In the figures above: of the last minute, as it was gauged last.",
    query: `SELECT age.key AS bucket, sum(age.value::bigint) AS events
FROM tallyweir.batch JOIN tallyweir.batch_measures USING (pipeline, sequence),
     jsonb_each_text(measures -> 'ages') AS age
WHERE pipeline = $1 AND published_at > now() - interval '60 s'
GROUP BY 1 -- bucket n ends at 2 ^ (n / 8) milliseconds`,
  },
  chart_batch: {
    text: "From the plan of a batch to its row in the ledger: of the batch in the middle, and of the one that 95 % are not slower than.",
    query: `${SLOT}, percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY published_at - planned_at)\n${OF_BATCHES}`,
  },
  chart_phases: {
    text: "Stage: from the plan of a batch to the last vote of its tasks. Publish: from there to its row in the ledger, with the wait for the batch before it. Each of the batch in the middle.",
    query: `${SLOT}, percentile_cont(0.5) WITHIN GROUP (ORDER BY staged_at - planned_at),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY published_at - staged_at)\n${OF_BATCHES}`,
  },
  chart_dead: {
    text: "Dead letters of the batches that were published in 10 s, of the four reasons with most of them.",
    query: `${SLOT}, reason, count(*)
FROM tallyweir.batch JOIN tallyweir.dead_letter USING (pipeline, sequence)
WHERE pipeline = $1 AND published_at > now() - interval '30 min' GROUP BY 1, 2`,
  },
  chart_searches: {
    text: "Looked up: searches in the catalog that no Bloom filter had spared, by IDs that were asked for; an ID may be searched for in several parts. In vain: those that found nothing, the filters' false positives, by the same IDs.",
    query: `${SLOT}, sum((measures #>> '{ids,looked_up}')::bigint) / sum((measures #>> '{ids,asked}')::float8),
       sum((measures #>> '{ids,looked_up}')::bigint - (measures #>> '{ids,met}')::bigint) / sum((measures #>> '{ids,asked}')::float8)
FROM tallyweir.batch JOIN tallyweir.batch_measures USING (pipeline, sequence)
WHERE pipeline = $1 AND published_at > now() - interval '30 min' GROUP BY 1`,
  },
  chart_backlog: {
    text: "To catch up: the lag divided by the events a second of the last minute; that is the backlog in seconds. Oldest unread: the home's clock less the time of the oldest record that is not read. Gauged every 30 s while a monitor runs.",
    query: GAUGES,
  },
  headroom: {
    text: "Seconds until Kafka deletes the first record that is not read, by the topic's retention; the shortest of all partitions, and nothing where nothing is unread or nothing is ever deleted. Gauged every 30 s while a monitor runs.",
    query: GAUGES,
  },
  chart_prepared: {
    text: "Branches of the pipeline that are prepared on the home's server, decided or not, and the age of the oldest; batches that are decided and not noted as committed in every database, and the time since the oldest was decided. Gauged every 30 s while a monitor runs.",
    query: `SELECT gid, now() - prepared FROM pg_prepared_xacts WHERE gid LIKE 'tallyweir:%';\n${GAUGES}`,
  },
};
