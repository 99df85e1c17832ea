-- How far pipelines may be scaled, as their operators say, and what was decided.
-- depends: 0020_profiles

-- A pipeline without a row is not scaled; of one with, what is NULL is left as it is.
CREATE TABLE tallyweir.scaling_bounds (
    pipeline          text PRIMARY KEY REFERENCES tallyweir.pipeline,
    executors_min     integer CHECK (executors_min > 0),
    executors_max     integer CHECK (executors_max >= executors_min),
    batch_offsets_min integer CHECK (batch_offsets_min > 0),
    batch_offsets_max integer CHECK (batch_offsets_max >= batch_offsets_min),
    set_by            text NOT NULL DEFAULT session_user,
    set_at            timestamptz NOT NULL DEFAULT now(),
    CHECK ((executors_min IS NULL) = (executors_max IS NULL)),
    CHECK ((batch_offsets_min IS NULL) = (batch_offsets_max IS NULL))
);

-- Every change, and every decision that has another reason than the one before it. Kept
-- for good, like the claims.
CREATE TABLE tallyweir.scaling_decision (
    pipeline             text NOT NULL,
    decision             bigint GENERATED ALWAYS AS IDENTITY,
    epoch                bigint NOT NULL,
    decided_at           timestamptz NOT NULL DEFAULT now(),
    -- What is to be, and what was to be before; NULL for what is not steered.
    executors            integer,
    executors_before     integer,
    batch_offsets        integer,
    batch_offsets_before integer,
    because              text NOT NULL,
    reason               text NOT NULL,
    -- What it was decided from. NULL is what was not known.
    executors_min        integer,
    executors_max        integer,
    batch_offsets_min    integer,
    batch_offsets_max    integer,
    executors_wanted     integer,
    executors_there      integer NOT NULL,
    executor_cores       integer NOT NULL,
    tasks_max            integer NOT NULL,
    connections_max      integer,
    backlog              bigint,
    backlog_s            double precision,
    arrival_rate         double precision,
    expected_rate        double precision,
    rate                 double precision,
    busy                 double precision,
    PRIMARY KEY (pipeline, decision),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim,
    CHECK ((executors IS NULL) = (executors_min IS NULL)),
    CHECK (executors BETWEEN executors_min AND executors_max),
    CHECK ((batch_offsets IS NULL) = (batch_offsets_min IS NULL)),
    CHECK (batch_offsets BETWEEN batch_offsets_min AND batch_offsets_max)
);
