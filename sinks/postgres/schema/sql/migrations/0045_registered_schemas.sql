-- The schemas of a schema registry, so that payloads decode alike when it is gone.
-- depends: 0044_row_digests

-- A row is never changed: what a batch was decoded by is what its replay is decoded by.
CREATE TABLE tallyweir.registered_schema (
    schema_id  bigint PRIMARY KEY CHECK (schema_id BETWEEN 1 AND 2147483647),
    kind       text NOT NULL,
    schema     text NOT NULL,
    -- [[name, schema], ...]: those that others refer to come first.
    referred   jsonb NOT NULL,
    stored_at  timestamptz NOT NULL DEFAULT now()
);
