-- What the alerts service has found and told, so that no restart forgets or repeats it.
-- depends: 0018_measures

-- One row from the moment that a rule's condition begins to hold. Where it ends before
-- the rule's time is over, the row goes; an alert that fired is kept for a while.
CREATE TABLE tallyweir.alert (
    alert_id    uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    rule        text NOT NULL,
    pipeline    text NOT NULL REFERENCES tallyweir.pipeline,
    severity    text NOT NULL CHECK (severity IN ('page', 'warning')),
    since       timestamptz NOT NULL,
    -- Where the pipeline stood when the condition began, for conditions that compare
    -- with that.
    mark        bigint,
    value       double precision NOT NULL,
    told        text NOT NULL,
    observed_at timestamptz NOT NULL,
    -- NULL while the condition has not held for as long as the rule asks.
    fired_at    timestamptz,
    -- NULL while it lasts.
    resolved_at timestamptz,
    CHECK (resolved_at IS NULL OR fired_at IS NOT NULL)
);

-- A rule has at most one alert of a pipeline at a time.
CREATE UNIQUE INDEX alert_lasting
    ON tallyweir.alert (pipeline, rule) WHERE resolved_at IS NULL;

-- What is to be sent, written in the transaction that makes it so: each row is sent at
-- least once, always under the same ID.
CREATE TABLE tallyweir.alert_delivery (
    alert_id     uuid NOT NULL REFERENCES tallyweir.alert ON DELETE CASCADE,
    channel      text NOT NULL,
    about        text NOT NULL CHECK (about IN ('firing', 'resolved')),
    due_at       timestamptz NOT NULL,
    -- Since the last success.
    failures     integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    error_code   text,
    -- The last success.
    delivered_at timestamptz,
    PRIMARY KEY (alert_id, channel, about)
);
