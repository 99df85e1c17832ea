// How each number comes about; docs/monitor.md says the same for those who read.

import { CHART_FORMULAS } from "./chart_formulas.js";

const MINUTE = `SELECT sum(read), sum(committed), sum(duplicate), sum(dead), sum(late)
FROM tallyweir.batch JOIN tallyweir.batch_partition USING (pipeline, sequence)
WHERE pipeline = $1 AND published_at > now() - interval '60 s'`;

const LEDGER = `SELECT * FROM tallyweir.batch JOIN tallyweir.batch_partition USING (pipeline, sequence)
WHERE pipeline = $1 ORDER BY sequence DESC`;

const OUTPUTS = `SELECT output_table, sum(events), sum(late), sum(revised), max(sequence) FILTER (WHERE rows > 0)
FROM tallyweir.batch_output WHERE pipeline = $1 AND sequence > $2 GROUP BY output_table`;

const MEASURES = `SELECT sequence, measures FROM tallyweir.batch_measures
WHERE pipeline = $1 ORDER BY sequence DESC LIMIT 100`;

export const FORMULAS = {
  ...CHART_FORMULAS,
  state: {
    text: "DRAINED: it is paused, and nothing is left to finish. PAUSED: somebody paused it. DRAINING: somebody has asked for a drain, and a driver is to end it. STOPPED: no session of the newest driver is connected to the home database. FENCED: none is, and one of an older driver, which may not publish any more. CAUGHT UP: the lag is 0. RUNNING: the last commit is at most 60 s ago. STALLED: anything else, so what does not move while there is lag never runs.",
    query: "SELECT epoch FROM tallyweir.epoch_claim WHERE pipeline = $1 ORDER BY epoch DESC LIMIT 1;\nSELECT application_name FROM pg_stat_activity;",
  },
  lag: {
    text: "Kafka's last stable offset less the next offset to read, added up over partitions. Offsets, not records: compaction and the markers of transactions leave offsets without a record.",
    query: "SELECT topic, partition, next_offset FROM tallyweir.partition_progress WHERE pipeline = $1",
  },
  catch_up: {
    text: "Lag divided by the events a second of the last minute. Unknown while nothing is read.",
    query: MINUTE,
  },
  freshness: {
    text: "The home database's clock less the newest event time that was committed.",
    query: "SELECT now() - max(event_time_max) FROM tallyweir.partition_progress WHERE pipeline = $1",
  },
  rate: { text: "Records read by the batches that were published in the last 60 s, divided by 60.", query: MINUTE },
  dead: { text: "Dead letters of the batches that were published in the last 60 s.", query: MINUTE },
  last_batch: {
    text: "The number of the last published batch, and how long ago it was published.",
    query: "SELECT sequence, now() - published_at FROM tallyweir.batch WHERE pipeline = $1 ORDER BY sequence DESC LIMIT 1",
  },
  in_doubt: {
    text: "Batches behind the newest one such that it and all before it are committed in every database.",
    query: "SELECT last_sequence - sequence FROM tallyweir.visible_through JOIN tallyweir.pipeline USING (pipeline) WHERE pipeline = $1",
  },
  watermark: {
    text: "No event before it is expected any more; what comes nevertheless is late.",
    query: "SELECT watermark FROM tallyweir.pipeline WHERE pipeline = $1",
  },
  receipt: {
    text: "What tallyweir verify found last, and when. Each run of verify reads the tables again; this page verifies nothing.",
    query: "SELECT is_verified, summary, batches, taken_at, taken_by FROM tallyweir.receipt WHERE pipeline = $1",
  },
  law: {
    text: "Every record that was read is committed, a duplicate, dead, late, expired or filtered: once. What is missing is what was read less all of these; the ledger's own constraint refuses a batch for which it is not 0.",
    query: "SELECT sum(read) - sum(committed + duplicate + dead + late + expired + filtered)\nFROM tallyweir.batch_partition WHERE pipeline = $1 AND sequence > $2",
  },
  phase: {
    text: "Stage: from the plan of a batch to the last vote of its tasks, by the driver's clock. Publish: from there to its row in the ledger, with the wait for the batch before it.",
    query: "SELECT staged_at - planned_at AS stage, published_at - staged_at AS publish\nFROM tallyweir.batch WHERE pipeline = $1 AND sequence > $2",
  },
  part: {
    text: "Steps of the tasks, then parts of the driver's loop and of publishing; docs/status.md says what each is.",
    query: MEASURES,
  },
  part_rate: { text: "Rows that went through the step, divided by its own seconds.", query: MEASURES },
  part_time: { text: "Seconds of the step in a batch; where several tasks ran it, of the one that took longest.", query: MEASURES },
  part_share: {
    text: "Of the time of the driver's one loop: between, plan, stage and wait. Batches overlap, so publishing has a share only as far as the next batch waits for it. All shares add up to 1.",
    query: MEASURES,
  },
  part_cpu: { text: "CPU seconds that the step took in a batch, added up over its tasks.", query: MEASURES },
  part_bytes: { text: "Bytes in memory of what the step passed on in a batch.", query: MEASURES },
  state_rows: { text: "IDs: the sum over the catalog. Tables: the server's estimate, as of the last vacuum or analyze.", query: "SELECT sum(ids) FROM tallyweir.seen_id_run WHERE pipeline = $1 AND NOT is_hidden;\nSELECT reltuples FROM pg_class WHERE oid = $2" },
  state_bytes: { text: "With indexes and what lies out of line.", query: "SELECT pg_total_relation_size($1)" },
  hot_key: {
    text: "Of each batch the five keys with most events, of each window output and each function on keyed state, added up over the batches shown: at least so many. Hashes, unless the pipeline says monitor.show_keys. The share is of the output's events.",
    query: MEASURES,
  },
  unnamed: {
    text: "Fields of documents that the pipeline's file does not name, since the version in force began, over the newest 1,000 batches; a batch counts its 64 most frequent. Since when the first of these batches was published.",
    query: MEASURES,
  },
  custom: {
    text: "What the pipeline's own functions count and observe, added up over the batches shown; committed with them. Percentiles are at most twice too high.",
    query: MEASURES,
  },
  bottleneck: {
    text: "What keeps the pipeline from being faster, from the newest ten batches (three at least) and from what the servers show: locks, branches in doubt, old snapshots, lag. First what stops it, then what explains most of the time of the driver's loop; docs/status.md has the rules.",
    query: MEASURES,
  },
  batch: { text: "The batch's number; each is in the ledger once, without a gap.", query: LEDGER },
  epoch: { text: "Counts the claims of the pipeline: the driver that published the batch.", query: LEDGER },
  ranges: { text: "The offsets of each partition that the batch covers: from the first, up to and without the last.", query: LEDGER },
  counts: { text: "Records of the batch by what became of them, added up over its partitions.", query: LEDGER },
  restagings: { text: "How often the batch was staged again without rows that Postgres refused.", query: LEDGER },
  branches: { text: "Databases beside the home, and parallel transactions, that the batch was committed in; those that are not noted as committed yet are in doubt.", query: "SELECT branch, committed_at FROM tallyweir.batch_branch WHERE pipeline = $1 AND sequence = $2" },
  sample: {
    text: "Of each step the last rows of the last batch that had any there, committed with it. Tasks take them where the rows pass, without what monitor.redact names or what is computed of it. Values are cut after 200 characters, rows after 4,000.",
    query: "SELECT step, output_table, sequence, redacted, rows FROM tallyweir.sample WHERE pipeline = $1",
  },
  redriven: {
    text: "Letters of the reason whose record Kafka has acknowledged again after a redrive. The letter stays; the copy is a record of its own.",
    query: "SELECT count(DISTINCT (kafka_topic, kafka_partition, kafka_offset)) FROM tallyweir.redrive\nWHERE pipeline = $1 AND sent_at IS NOT NULL",
  },
  log_batch: {
    text: "The batch that the line names, or else the one at hand: the number after the last published one when the line was kept.",
    query: "SELECT at, level, event, sequence, epoch, detail FROM tallyweir.driver_log WHERE pipeline = $1 ORDER BY number DESC",
  },
  table_rows: {
    text: "What the planner believes, from the last ANALYZE or vacuum. Unknown where the home database does not have the table.",
    query: "SELECT reltuples FROM pg_class WHERE oid = to_regclass($1)",
  },
  table_size: { text: "What the table takes on disk, with its indexes.", query: "SELECT pg_total_relation_size($1)" },
  table_fresh: {
    text: "The watermark after the last batch that gave the table rows: no event before it is expected any more. Behind is from there to the home database's clock.",
    query: "SELECT watermark_after, now() - watermark_after FROM tallyweir.batch WHERE pipeline = $1 AND sequence = $2",
  },
  table_last: { text: "The last of the newest 1,000 batches that gave the table rows, and when it was published.", query: OUTPUTS },
  table_counts: {
    text: "Events that the newest 1,000 batches gave the table, those too late for it, and rows of windows that were changed after they had been shown as complete.",
    query: OUTPUTS,
  },
  next_offset: {
    text: "The next offset to read of the partition, and when Kafka got the record there; nothing if it has none yet.",
    query: "SELECT topic, partition, next_offset FROM tallyweir.partition_progress WHERE pipeline = $1",
  },
  kafka_log: { text: "Kafka's first offset of the partition, and its last stable one.", query: "kafka-get-offsets --topic TOPIC --time earliest, then latest" },
  partition_headroom: {
    text: "Until Kafka deletes the next record, as alerts judge it: by the topic's retention.ms and, where its log was cut, by retention.bytes; nothing if it is kept for good.",
    query: "kafka-configs --describe --entity-type topics --entity-name TOPIC",
  },
  snapshot_size: { text: "What its copies take on disk. Seen IDs that are kept for it are not counted.", query: "SELECT sum(pg_total_relation_size(oid)) FROM pg_class\nWHERE relnamespace = 'tallyweir_snapshot_N'::regnamespace AND relkind = 'r'" },
  verdict: {
    text: "What plan says of going back to the version as things are: compatible, needs migration, or incompatible with the first reason. Of the newest ten.",
    query: "SELECT version, definition, layout FROM tallyweir.pipeline_version WHERE pipeline = $1 ORDER BY version DESC",
  },
  behind: {
    text: "Offsets that the pipeline in front has read and the fork has not, added up over partitions. While there are any, the two cannot change places.",
    query: "SELECT topic, partition, next_offset FROM tallyweir.partition_progress WHERE pipeline IN ($1, $2)",
  },
  diff: { text: "Rows by position, windows by group where both are final, rows of functions as they are: what both have read. docs/forks.md says more.", query: "tallyweir diff PIPELINE FORK --json" },
  decision: {
    text: "What the driver looked at, over the last 60 s, before it decided; docs/scaling.md has each formula.",
    query: "SELECT * FROM tallyweir.scaling_decision WHERE pipeline = $1 ORDER BY decision DESC LIMIT 10",
  },
  act: {
    text: "What people have done to the pipeline besides running it: each act is one transaction behind its own claim. Redriving, snapshots and bounds are not acts; the ledger notes them in other tables.",
    query: "SELECT kind, reason, after_sequence, detail, done_by, done_at FROM tallyweir.act WHERE pipeline = $1 ORDER BY epoch DESC",
  },
  letters: {
    text: "Rows of tallyweir.dead_letter with the reason. A record is a dead letter once at most: its position is the key.",
    query: "SELECT reason, count(*) FROM tallyweir.dead_letter WHERE pipeline = $1 GROUP BY reason",
  },
};
