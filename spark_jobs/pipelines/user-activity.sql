-- The profiles that user-activity looks up, with a few to begin with. Your own table
-- of the same columns does as well; so does a view.
CREATE TABLE IF NOT EXISTS user_profiles (
    user_id bigint PRIMARY KEY,
    segment text NOT NULL,
    country text NOT NULL,
    registered_on date NOT NULL
);

INSERT INTO user_profiles (user_id, segment, country, registered_on)
SELECT
    number,
    (ARRAY['new', 'regular', 'loyal'])[1 + number % 3],
    (ARRAY['DE', 'FR', 'IT', 'NL', 'PL'])[1 + number % 5],
    date '2020-01-01' + (number * 7)::integer
-- A fifth of the made-up users has no profile.
FROM generate_series(0, 159) AS number
ON CONFLICT (user_id) DO NOTHING;
