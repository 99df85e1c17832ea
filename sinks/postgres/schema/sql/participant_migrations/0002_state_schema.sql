-- Open windows lie in a schema of their own, in which a publisher may make tables; in
-- the markers' schema it may not.
-- depends: 0001_marker

-- A branch that is prepared holds its window states; whoever finishes it must not be
-- kept waiting by this for long.
SET LOCAL lock_timeout = '10s';

CREATE SCHEMA IF NOT EXISTS tallyweir_state;

DO $$
DECLARE
    state name;
BEGIN
    FOR state IN
        SELECT relname
        FROM pg_class
        WHERE relnamespace = 'tallyweir_participant'::regnamespace
          AND relkind = 'r'
          AND starts_with(relname, 'window_state_')
    LOOP
        EXECUTE format(
            'ALTER TABLE tallyweir_participant.%I SET SCHEMA tallyweir_state', state
        );
    END LOOP;
END
$$;
