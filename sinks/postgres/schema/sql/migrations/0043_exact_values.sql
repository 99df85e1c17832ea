-- What refuses a value that a column would not hold as it is.
-- depends: 0042_accepted_losses

-- The participants' migration of this name makes the same function.
CREATE OR REPLACE FUNCTION tallyweir_state.would_change(
    of_column text, of_type text, of_value text
) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING
        -- A data exception, as Postgres itself raises where a value does not fit at all.
        ERRCODE = '22000',
        MESSAGE = format(
            'VALUE_WOULD_CHANGE: column %s, which is %s, cannot hold %L as it is',
            of_column, of_type, left(of_value, 200)
        );
END
$$;
