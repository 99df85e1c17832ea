-- Where pipelines spend their time, as flame graphs; the newest few of each kind.
-- depends: 0019_alerts

CREATE TABLE tallyweir.profile (
    profile_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline   text NOT NULL REFERENCES tallyweir.pipeline,
    kind       text NOT NULL CHECK (kind IN ('python', 'jvm')),
    taken_by   text NOT NULL DEFAULT session_user,
    taken_at   timestamptz NOT NULL DEFAULT now(),
    host       text NOT NULL,
    epoch      bigint NOT NULL,
    seconds    integer NOT NULL CHECK (seconds > 0),
    samples    bigint NOT NULL CHECK (samples >= 0),
    svg        text NOT NULL
);

CREATE INDEX profile_newest ON tallyweir.profile (pipeline, kind, profile_id);
