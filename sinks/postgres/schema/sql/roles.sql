-- The group roles and what each may do; docs/security.md has the same as a matrix.
-- One transaction revokes everything and grants it again. So excess privileges of a
-- former version go, and no role ever has fewer privileges than it needs.

-- name: missing_roles
SELECT wanted.name
FROM unnest(%(roles)s::text[]) AS wanted (name)
LEFT JOIN pg_roles ON rolname = wanted.name
WHERE rolname IS NULL

-- name: create_role
CREATE ROLE {role} NOLOGIN

-- name: is_member
SELECT current_user::text, pg_has_role('tallyweir_publisher', 'USAGE')

-- name: join_publisher
-- A role that sets default privileges for another must be its member.
GRANT tallyweir_publisher TO CURRENT_USER

-- name: database
GRANT CONNECT ON DATABASE {database} TO
    tallyweir_publisher, tallyweir_relay, tallyweir_reader, tallyweir_monitor,
    tallyweir_alerts;

-- Each epoch of a driver has its own schema for staging, which no other role may read.
GRANT CREATE ON DATABASE {database} TO tallyweir_publisher;

-- Result tables without a schema are made in public, and belong to the publisher.
GRANT USAGE, CREATE ON SCHEMA public TO tallyweir_publisher;
GRANT USAGE ON SCHEMA public TO tallyweir_reader, tallyweir_monitor;
ALTER DEFAULT PRIVILEGES FOR ROLE tallyweir_publisher IN SCHEMA public
    GRANT SELECT ON TABLES TO tallyweir_monitor;

-- Open windows.
GRANT USAGE, CREATE ON SCHEMA tallyweir_state TO tallyweir_publisher;
GRANT USAGE ON SCHEMA tallyweir_state TO tallyweir_monitor;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tallyweir_state
    TO tallyweir_publisher;
GRANT SELECT ON ALL TABLES IN SCHEMA tallyweir_state TO tallyweir_monitor;
ALTER DEFAULT PRIVILEGES FOR ROLE tallyweir_publisher IN SCHEMA tallyweir_state
    GRANT SELECT ON TABLES TO tallyweir_monitor;

-- name: home
REVOKE ALL ON ALL TABLES IN SCHEMA tallyweir FROM
    tallyweir_publisher, tallyweir_relay, tallyweir_reader, tallyweir_monitor,
    tallyweir_alerts;
GRANT USAGE ON SCHEMA tallyweir TO
    tallyweir_publisher, tallyweir_relay, tallyweir_reader, tallyweir_monitor,
    tallyweir_alerts;
-- Every process checks whether the schema has its version.
GRANT SELECT ON tallyweir._yoyo_migration TO
    tallyweir_publisher, tallyweir_relay, tallyweir_reader, tallyweir_monitor,
    tallyweir_alerts;

-- The publisher: driver, executors, resolver, repair. It adds to the ledger and never
-- changes its entries; it moves positions and watermark.
GRANT SELECT ON
    tallyweir.installation, tallyweir.pipeline, tallyweir.epoch_claim,
    tallyweir.partition_progress, tallyweir.batch, tallyweir.batch_partition,
    tallyweir.batch_output, tallyweir.batch_branch, tallyweir.accepted_gap,
    tallyweir.accepted_loss,
    tallyweir.offset_reset, tallyweir.snapshot, tallyweir.restore,
    tallyweir.seen_id_run, tallyweir.conservation, tallyweir.standing_from,
    tallyweir.visible_through,
    tallyweir.visible_offset, tallyweir.batch_run, tallyweir.batch_run_input,
    tallyweir.pause, tallyweir.drain, tallyweir.act, tallyweir.scaling_bounds,
    tallyweir.scaling_decision, tallyweir.erased_id, tallyweir.erased_row,
    tallyweir.shadow_table, tallyweir.discarded_pipeline, tallyweir.pipeline_version
TO tallyweir_publisher;
GRANT INSERT ON
    tallyweir.pipeline, tallyweir.epoch_claim, tallyweir.partition_progress,
    tallyweir.batch, tallyweir.batch_partition, tallyweir.batch_output,
    tallyweir.batch_branch, tallyweir.seen_id_run, tallyweir.dead_letter,
    tallyweir.late_event, tallyweir.expired_event, tallyweir.duplicate_event,
    tallyweir.filtered_event, tallyweir.outbox, tallyweir.batch_run,
    tallyweir.batch_run_input, tallyweir.replaced_row, tallyweir.pause, tallyweir.act,
    tallyweir.scaling_decision, tallyweir.pipeline_version
TO tallyweir_publisher;
-- At its start a driver counts the rows that an empty table has lost by replacements
-- and erasures.
GRANT SELECT ON tallyweir.replaced_row, tallyweir.erased_result TO tallyweir_publisher;
-- A driver ends the drain that an operator has asked for.
GRANT UPDATE (drained_epoch) ON tallyweir.drain TO tallyweir_publisher;
-- A driver fills in what was not recorded about the version that it runs.
GRANT UPDATE (layout, file_text) ON tallyweir.pipeline_version TO tallyweir_publisher;
-- It changes keyed state and timers as functions ask.
GRANT SELECT, INSERT, DELETE ON tallyweir.keyed_state, tallyweir.keyed_timer
    TO tallyweir_publisher;
GRANT UPDATE (value, schema_version, expires_at, sequence)
    ON tallyweir.keyed_state TO tallyweir_publisher;
GRANT UPDATE (shard, clock, fires_at, sequence)
    ON tallyweir.keyed_timer TO tallyweir_publisher;
-- A batch run that replaces all earlier batches forgets the IDs that they saw; the
-- resolver replaces runs by chunks.
GRANT DELETE ON tallyweir.seen_id_run TO tallyweir_publisher;
GRANT UPDATE (is_hidden) ON tallyweir.seen_id_run TO tallyweir_publisher;
-- Measures of the newest batches.
GRANT SELECT, INSERT, DELETE ON tallyweir.batch_measures TO tallyweir_publisher;
-- Samples of each step; new rows replace the former ones.
GRANT SELECT, INSERT, DELETE ON tallyweir.sample TO tallyweir_publisher;
GRANT UPDATE (sequence, redacted, rows) ON tallyweir.sample TO tallyweir_publisher;
-- The newest lines of its log; older ones are deleted.
GRANT SELECT, INSERT, DELETE ON tallyweir.driver_log TO tallyweir_publisher;
-- A schema of the registry is kept once and never changed.
GRANT SELECT ON tallyweir.registered_schema TO tallyweir_reader, tallyweir_alerts;
GRANT SELECT, INSERT ON tallyweir.registered_schema TO tallyweir_publisher;
-- Its metrics count dead letters by reason.
GRANT SELECT (pipeline, sequence, reason) ON tallyweir.dead_letter
    TO tallyweir_publisher;
GRANT UPDATE (definition, definition_hash, watermark, last_sequence)
    ON tallyweir.pipeline TO tallyweir_publisher;
GRANT UPDATE (next_offset, event_time_max, active_at)
    ON tallyweir.partition_progress TO tallyweir_publisher;
GRANT UPDATE (committed_at) ON tallyweir.batch_branch TO tallyweir_publisher;
-- A process that profiles a driver has the driver's role; new profiles replace old
-- ones.
GRANT SELECT, INSERT, DELETE ON tallyweir.profile TO tallyweir_publisher;
GRANT SELECT ON tallyweir.receipt TO tallyweir_publisher;
GRANT EXECUTE ON FUNCTION
    tallyweir.create_pipeline_runs(text),
    tallyweir.create_bucket(integer, bigint),
    tallyweir.drop_bucket(integer, bigint)
TO tallyweir_publisher;

-- The relay: reads whole dead letters and messages, and the pipelines' progress; moves
-- its own cursors, and deletes the messages that it has sent.
GRANT SELECT ON
    tallyweir.pipeline, tallyweir.partition_progress, tallyweir.batch,
    tallyweir.dead_letter, tallyweir.outbox, tallyweir.relay_cursor,
    tallyweir.visible_through, tallyweir.visible_offset
TO tallyweir_relay;
GRANT SELECT (installation_id) ON tallyweir.installation TO tallyweir_relay;
GRANT INSERT ON tallyweir.relay_cursor TO tallyweir_relay;
GRANT UPDATE (
    sequence, kafka_topic, kafka_partition, kafka_offset, messages, moved_at
) ON tallyweir.relay_cursor TO tallyweir_relay;
GRANT DELETE ON tallyweir.outbox TO tallyweir_relay;

-- Readers: the ledger and the views, without data from producers. The detail of a dead
-- letter may quote the record, so readers do not see it.
GRANT SELECT ON
    tallyweir.pipeline, tallyweir.epoch_claim, tallyweir.partition_progress,
    tallyweir.batch, tallyweir.batch_partition, tallyweir.batch_output,
    tallyweir.batch_branch, tallyweir.accepted_gap, tallyweir.offset_reset,
    tallyweir.accepted_loss, tallyweir.snapshot, tallyweir.restore,
    tallyweir.relay_cursor, tallyweir.conservation, tallyweir.visible_through,
    tallyweir.visible_offset, tallyweir.batch_run, tallyweir.batch_run_input,
    tallyweir.standing_from, tallyweir.pause, tallyweir.drain,
    tallyweir.act, tallyweir.redrive, tallyweir.scaling_bounds, tallyweir.scaling_decision,
    tallyweir.erased_id, tallyweir.erased_row, tallyweir.erased_result,
    tallyweir.shadow_table, tallyweir.discarded_pipeline, tallyweir.receipt,
    tallyweir.pipeline_version, tallyweir.put_aside, tallyweir.second_chance, tallyweir.no_result
TO tallyweir_reader;
-- Hot keys and IDs are data from producers. So readers see measures only through a
-- view, and all columns of rows except the ID.
GRANT SELECT ON tallyweir.batch_usage, tallyweir.pipeline_gauge TO tallyweir_reader;
GRANT SELECT (
    pipeline, sequence, kafka_topic, kafka_partition, kafka_offset, topic
) ON tallyweir.outbox TO tallyweir_reader;
GRANT SELECT (
    pipeline, kafka_topic, kafka_partition, kafka_offset, sequence, kafka_timestamp,
    reason
) ON tallyweir.dead_letter TO tallyweir_reader;
GRANT SELECT (
    pipeline, output_table, kafka_topic, kafka_partition, kafka_offset, sequence,
    event_time
) ON tallyweir.late_event TO tallyweir_reader;
GRANT SELECT (
    pipeline, kafka_topic, kafka_partition, kafka_offset, sequence, event_time
) ON tallyweir.expired_event TO tallyweir_reader;
GRANT SELECT (
    pipeline, kafka_topic, kafka_partition, kafka_offset, sequence
) ON tallyweir.duplicate_event TO tallyweir_reader;
GRANT SELECT (
    pipeline, kafka_topic, kafka_partition, kafka_offset, sequence, condition
) ON tallyweir.filtered_event TO tallyweir_reader;
GRANT SELECT (
    pipeline, output_table, kafka_topic, kafka_partition, kafka_offset, sequence
) ON tallyweir.replaced_row TO tallyweir_reader;

GRANT SELECT ON tallyweir.alert, tallyweir.alert_delivery, tallyweir.profile
    TO tallyweir_reader;

-- The alerts service: reads the pipelines' progress, but no data from producers; keeps
-- alerts and their notifications.
GRANT SELECT ON
    tallyweir.pipeline, tallyweir.epoch_claim, tallyweir.partition_progress,
    tallyweir.batch, tallyweir.batch_partition, tallyweir.visible_through,
    tallyweir.pause, tallyweir.drain, tallyweir.act, tallyweir.receipt,
    tallyweir.batch_output, tallyweir.batch_usage, tallyweir.discarded_pipeline,
    tallyweir.accepted_loss
TO tallyweir_alerts;
GRANT SELECT (installation_id) ON tallyweir.installation TO tallyweir_alerts;
GRANT SELECT, INSERT, DELETE ON tallyweir.alert TO tallyweir_alerts;
GRANT UPDATE (
    severity, since, mark, value, told, observed_at, fired_at, resolved_at
) ON tallyweir.alert TO tallyweir_alerts;
GRANT SELECT, INSERT ON tallyweir.alert_delivery TO tallyweir_alerts;
GRANT UPDATE (due_at, failures, error_code, delivered_at)
    ON tallyweir.alert_delivery TO tallyweir_alerts;

-- The monitor: status, verify, why, indoubt list. why computes fingerprints and shows
-- payloads, so this role reads the installation's key and whole records.
GRANT SELECT ON ALL TABLES IN SCHEMA tallyweir TO tallyweir_monitor;
-- The newest result of verify.
GRANT INSERT, UPDATE (is_verified, summary, batches, taken_at, taken_by)
    ON tallyweir.receipt TO tallyweir_monitor;
-- The gauges of the newest days, for its charts.
GRANT INSERT, DELETE ON tallyweir.pipeline_gauge TO tallyweir_monitor;

-- name: participant
REVOKE ALL ON ALL TABLES IN SCHEMA tallyweir_participant FROM
    tallyweir_publisher, tallyweir_relay, tallyweir_reader, tallyweir_monitor,
    tallyweir_alerts;
GRANT USAGE ON SCHEMA tallyweir_participant TO
    tallyweir_publisher, tallyweir_monitor;
GRANT SELECT ON tallyweir_participant._yoyo_migration TO tallyweir_publisher;
GRANT SELECT, INSERT ON tallyweir_participant.marker TO tallyweir_publisher;
-- Locking a marker FOR NO KEY UPDATE needs the right to update some column; no decision
-- depends on this one.
GRANT UPDATE (prepared_at) ON tallyweir_participant.marker TO tallyweir_publisher;
GRANT SELECT ON ALL TABLES IN SCHEMA tallyweir_participant TO tallyweir_monitor;

-- name: not_granted
-- A role that may not grant a privilege gets a warning from Postgres, and no error.
SELECT missing.what
FROM (
    VALUES
        (
            'CREATE ON DATABASE ' || quote_ident(current_database()),
            has_database_privilege('tallyweir_publisher', current_database(), 'CREATE')
        ),
        (
            'USAGE, CREATE ON SCHEMA public',
            has_schema_privilege('tallyweir_publisher', 'public', 'CREATE')
            AND has_schema_privilege('tallyweir_publisher', 'public', 'USAGE')
        )
) AS missing (what, is_granted)
WHERE NOT is_granted
