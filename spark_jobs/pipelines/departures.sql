-- What departures looks up. `tallyweir templates run departures` fills those that are
-- empty from the data set of the flights; `templates init` writes the files beside this
-- one, for psql: \copy weather FROM weather.csv (FORMAT csv, HEADER, NULL 'NA')
CREATE TABLE IF NOT EXISTS airlines (
    code text PRIMARY KEY,
    name text NOT NULL
);

CREATE TABLE IF NOT EXISTS airports (
    code text PRIMARY KEY,
    name text NOT NULL,
    latitude double precision NOT NULL,
    longitude double precision NOT NULL,
    altitude_feet integer NOT NULL,
    utc_offset_hours integer,
    daylight_saving text,
    time_zone text
);

CREATE TABLE IF NOT EXISTS planes (
    tailnum text PRIMARY KEY,
    built integer,
    type text NOT NULL,
    manufacturer text NOT NULL,
    model text NOT NULL,
    engines integer NOT NULL,
    seats integer NOT NULL,
    speed_mph integer,
    engine text NOT NULL
);

-- The hour is local, and is there twice on the day in November; time_hour is its instant.
CREATE TABLE IF NOT EXISTS weather (
    origin text NOT NULL,
    year integer NOT NULL,
    month integer NOT NULL,
    day integer NOT NULL,
    hour integer NOT NULL,
    temperature_fahrenheit double precision,
    dew_point_fahrenheit double precision,
    humidity_percent double precision,
    wind_degrees integer,
    wind_mph double precision,
    gust_mph double precision,
    precipitation_inches double precision NOT NULL,
    pressure_millibars double precision,
    visibility_miles double precision NOT NULL,
    time_hour timestamptz NOT NULL,
    PRIMARY KEY (origin, time_hour)
);

CREATE OR REPLACE VIEW weather_by_hour AS
SELECT
    origin,
    time_hour AS valid_from,
    time_hour + interval '1 hour' AS valid_until,
    CASE WHEN precipitation_inches > 0 THEN 'wet' ELSE 'dry' END AS weather,
    temperature_fahrenheit,
    wind_mph,
    visibility_miles
FROM weather;
