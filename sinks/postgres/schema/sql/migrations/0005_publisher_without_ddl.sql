-- What a publisher makes at run time, so that it needs no right to make anything in
-- the schema tallyweir.
-- depends: 0003_branches

-- A branch that is prepared holds its window states; whoever finishes it must not be
-- kept waiting by this for long.
SET LOCAL lock_timeout = '10s';

-- The open windows of every output, made by whoever publishes.
CREATE SCHEMA IF NOT EXISTS tallyweir_state;

DO $$
DECLARE
    state name;
BEGIN
    FOR state IN
        SELECT relname
        FROM pg_class
        WHERE relnamespace = 'tallyweir'::regnamespace
          AND relkind = 'r'
          AND starts_with(relname, 'window_state_')
    LOOP
        EXECUTE format('ALTER TABLE tallyweir.%I SET SCHEMA tallyweir_state', state);
    END LOOP;
END
$$;

-- Parts of the seen-ID catalog. They belong to the owner of the schema, and names and
-- bounds are made here: the caller says of which pipeline and bucket, nothing else.

CREATE FUNCTION tallyweir.create_pipeline_runs(of_pipeline text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    number integer;
BEGIN
    SELECT pipeline_number INTO STRICT number
    FROM tallyweir.pipeline
    WHERE pipeline = of_pipeline;
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS tallyweir.%I '
        'PARTITION OF tallyweir.seen_id_run FOR VALUES IN (%L) '
        'PARTITION BY LIST (bucket)',
        'seen_id_run_p' || number, of_pipeline
    );
END
$$;

CREATE FUNCTION tallyweir.name_bucket(of_pipeline_number integer, of_bucket bigint)
RETURNS text
LANGUAGE sql
IMMUTABLE
RETURN 'seen_id_run_p' || of_pipeline_number
    || '_b' || CASE WHEN of_bucket < 0 THEN 'm' ELSE '' END || abs(of_bucket);

CREATE FUNCTION tallyweir.create_bucket(of_pipeline_number integer, of_bucket bigint)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS tallyweir.%I '
        'PARTITION OF tallyweir.%I FOR VALUES IN (%L)',
        tallyweir.name_bucket(of_pipeline_number, of_bucket),
        'seen_id_run_p' || of_pipeline_number, of_bucket
    );
END
$$;

CREATE FUNCTION tallyweir.drop_bucket(of_pipeline_number integer, of_bucket bigint)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format(
        'DROP TABLE IF EXISTS tallyweir.%I',
        tallyweir.name_bucket(of_pipeline_number, of_bucket)
    );
END
$$;

REVOKE ALL ON FUNCTION
    tallyweir.create_pipeline_runs(text),
    tallyweir.name_bucket(integer, bigint),
    tallyweir.create_bucket(integer, bigint),
    tallyweir.drop_bucket(integer, bigint)
FROM PUBLIC;
