-- name: pin
-- A setting that the server's version does not know is left out. A setting that only a
-- superuser may change is changed only if it differs.
SELECT pg_catalog.set_config(name, value, false)
FROM (VALUES
    -- Text and bytes
    ('client_encoding', 'UTF8', false),
    ('standard_conforming_strings', 'on', false),
    ('backslash_quote', 'safe_encoding', false),
    ('quote_all_identifiers', 'off', false),
    ('bytea_output', 'hex', false),
    ('array_nulls', 'on', false),
    ('xmlbinary', 'base64', false),
    ('xmloption', 'content', false),
    -- Numbers, dates and times
    ('extra_float_digits', '1', false),
    ('lc_numeric', 'C', false),
    ('lc_monetary', 'C', false),
    ('lc_time', 'C', false),
    ('datestyle', 'ISO, MDY', false),
    ('intervalstyle', 'postgres', false),
    ('timezone', 'UTC', false),
    ('timezone_abbreviations', 'Default', false),
    -- Comparison and search
    ('transform_null_equals', 'off', false),
    ('default_text_search_config', 'pg_catalog.simple', false),
    ('gin_fuzzy_search_limit', '0', false),
    ('zero_damaged_pages', 'off', true),
    ('ignore_checksum_failure', 'off', true),
    -- Names and rights
    ('search_path', 'public', false),
    ('row_security', 'on', false),
    ('session_replication_role', 'origin', true),
    ('restrict_nonsystem_relation_kind', '', false),
    ('createrole_self_grant', '', false),
    -- Isolation, locks and durability
    ('default_transaction_isolation', 'read committed', false),
    ('default_transaction_deferrable', 'off', false),
    ('lock_timeout', '0', false),
    ('statement_timeout', %(statement_timeout)s, false),
    ('transaction_timeout', '0', false),
    ('idle_in_transaction_session_timeout', '0', false),
    ('idle_session_timeout', '0', false),
    ('synchronous_commit', 'on', false),
    ('exit_on_error', 'off', false),
    -- Postgres reports a cancelled wait for a standby by a warning
    ('client_min_messages', 'warning', false)
) AS pinned (name, value, is_privileged)
WHERE pg_catalog.current_setting(name, true) IS NOT NULL
  AND NOT (is_privileged AND pg_catalog.current_setting(name, true) = value);
