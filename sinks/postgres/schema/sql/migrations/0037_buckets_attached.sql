-- Parts of the seen-ID catalog are made beside it and attached. Made in their place they
-- lock the table that they are parts of against everybody: whoever reads it in a long
-- transaction, as verify and pg_dump do, kept every batch waiting that needs a bucket,
-- and a pipeline's first start kept all others waiting. To attach lets others read and
-- write meanwhile.
-- depends: 0036_late_events_kept

CREATE OR REPLACE FUNCTION tallyweir.create_pipeline_runs(of_pipeline text)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    number integer;
    runs text;
BEGIN
    SELECT pipeline_number INTO STRICT number
    FROM tallyweir.pipeline
    WHERE pipeline = of_pipeline;
    runs := format('tallyweir.%I', 'seen_id_run_p' || number);
    IF to_regclass(runs) IS NOT NULL THEN
        RETURN;
    END IF;
    -- Two who make the same come one after the other, and nobody else waits.
    LOCK TABLE tallyweir.seen_id_run IN SHARE UPDATE EXCLUSIVE MODE;
    IF to_regclass(runs) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format(
        'CREATE TABLE %s (LIKE tallyweir.seen_id_run INCLUDING ALL) '
        'PARTITION BY LIST (bucket)%s',
        runs, tallyweir.place_of_parts('tallyweir.seen_id_run')
    );
    EXECUTE format(
        'ALTER TABLE tallyweir.seen_id_run ATTACH PARTITION %s FOR VALUES IN (%L)',
        runs, of_pipeline
    );
END
$$;

-- LIKE copies columns with their storage, defaults, constraints and keys, but not where
-- an operator has parts of a table lie.
CREATE FUNCTION tallyweir.place_of_parts(of_table regclass) RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        (
            SELECT format(' TABLESPACE %I', spcname)
            FROM pg_class
            JOIN pg_tablespace ON pg_tablespace.oid = reltablespace
            WHERE pg_class.oid = of_table
        ),
        ''
    )
$$;

CREATE OR REPLACE FUNCTION tallyweir.create_bucket(
    of_pipeline_number integer, of_bucket bigint
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    runs text := format('tallyweir.%I', 'seen_id_run_p' || of_pipeline_number);
    part text := format(
        'tallyweir.%I', tallyweir.name_bucket(of_pipeline_number, of_bucket)
    );
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE', runs);
    IF to_regclass(part) IS NOT NULL THEN
        RETURN;
    END IF;
    -- It is empty, so there is nothing to look through when it is attached.
    EXECUTE format(
        'CREATE TABLE %s (LIKE %s INCLUDING ALL)%s',
        part, runs, tallyweir.place_of_parts(runs::regclass)
    );
    EXECUTE format(
        'ALTER TABLE %s ATTACH PARTITION %s FOR VALUES IN (%L)',
        runs, part, of_bucket
    );
END
$$;

REVOKE ALL ON FUNCTION tallyweir.place_of_parts(regclass) FROM PUBLIC;
