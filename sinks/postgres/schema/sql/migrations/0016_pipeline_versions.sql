-- Versions of pipelines: what each ran as, since which batch, by whom and why.
-- depends: 0015_steering

-- Kept for good. The newest row is in force; a batch ran under the newest version whose
-- from_sequence is below its own.
CREATE TABLE tallyweir.pipeline_version (
    pipeline        text NOT NULL REFERENCES tallyweir.pipeline,
    version         integer NOT NULL CHECK (version > 0),
    definition      jsonb NOT NULL,
    definition_hash text NOT NULL,
    -- Its tables as the driver makes them; NULL until a driver has told.
    layout          jsonb,
    -- What its windows and IDs do not know of the time before it.
    held            jsonb NOT NULL DEFAULT '{}',
    -- The pipeline file, if it was YAML.
    file_text       text,
    -- The last batch that was published before it came into force.
    from_sequence   bigint NOT NULL CHECK (from_sequence >= 0),
    -- The claim that made it; NULL for what ran before there were versions.
    epoch           bigint,
    -- Whether somebody said so, and no driver just started with another file.
    is_announced    boolean NOT NULL DEFAULT false,
    reason          text NOT NULL CHECK (btrim(reason) <> ''),
    rolls_back_to   integer,
    -- The batches that the driver watches before it trusts this version; 0 for none.
    watched_batches integer NOT NULL DEFAULT 0 CHECK (watched_batches >= 0),
    made_by         text NOT NULL DEFAULT session_user,
    made_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, version),
    -- An act makes one version, or it was done twice.
    UNIQUE (pipeline, epoch),
    FOREIGN KEY (pipeline, epoch) REFERENCES tallyweir.epoch_claim,
    FOREIGN KEY (pipeline, rolls_back_to) REFERENCES tallyweir.pipeline_version,
    CHECK (rolls_back_to < version)
);

INSERT INTO tallyweir.pipeline_version (
    pipeline, version, definition, definition_hash, from_sequence, reason
)
SELECT pipeline, 1, definition, definition_hash, 0,
       'what ran before versions were kept'
FROM tallyweir.pipeline;
