#!/bin/bash
# Runs once, in the empty server: two databases, their owner, and one login for each
# service. What a login may do it has from the group role that it is in; `tallyweir
# migrate` grants those.
set -euo pipefail
password() { cat "/run/secrets/postgres_$1.password"; }

psql --no-psqlrc -v ON_ERROR_STOP=1 \
    -v owner="$(password owner)" -v publisher="$(password publisher)" \
    -v relay="$(password relay)" -v monitor="$(password monitor)" \
    -v alerts="$(password alerts)" <<'SQL'
CREATE ROLE tallyweir_publisher NOLOGIN;
CREATE ROLE tallyweir_relay NOLOGIN;
CREATE ROLE tallyweir_reader NOLOGIN;
CREATE ROLE tallyweir_monitor NOLOGIN;
CREATE ROLE tallyweir_alerts NOLOGIN;
-- The owner says what the monitor may do with the tables that the publisher will make.
CREATE ROLE owner LOGIN PASSWORD :'owner' IN ROLE tallyweir_publisher;
CREATE ROLE publisher LOGIN PASSWORD :'publisher' IN ROLE tallyweir_publisher;
CREATE ROLE relay LOGIN PASSWORD :'relay' IN ROLE tallyweir_relay;
CREATE ROLE monitor LOGIN PASSWORD :'monitor' IN ROLE tallyweir_monitor;
CREATE ROLE alerts LOGIN PASSWORD :'alerts' IN ROLE tallyweir_alerts;
-- What they make and prepare belongs to the group: only who prepared a branch may finish
-- it, and driver and resolver must be able to finish each other's.
ALTER ROLE publisher SET role = 'tallyweir_publisher';
CREATE DATABASE tallyweir OWNER owner;
CREATE DATABASE archive OWNER owner;
SQL
for database in tallyweir archive; do
    psql --no-psqlrc -v ON_ERROR_STOP=1 -d "$database" -v database="$database" <<'SQL'
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
ALTER SCHEMA public OWNER TO owner;
SQL
done

# What the example pipeline looks names up in.
psql --no-psqlrc -v ON_ERROR_STOP=1 -d tallyweir <<'SQL'
SET ROLE owner;
CREATE TABLE airlines (code text PRIMARY KEY, name text NOT NULL);
GRANT SELECT ON airlines TO tallyweir_publisher;
INSERT INTO airlines VALUES
    ('9E', 'Endeavor Air Inc.'), ('AA', 'American Airlines Inc.'),
    ('AS', 'Alaska Airlines Inc.'), ('B6', 'JetBlue Airways'),
    ('DL', 'Delta Air Lines Inc.'), ('EV', 'ExpressJet Airlines Inc.'),
    ('F9', 'Frontier Airlines Inc.'), ('FL', 'AirTran Airways Corporation'),
    ('HA', 'Hawaiian Airlines Inc.'), ('MQ', 'Envoy Air'),
    ('OO', 'SkyWest Airlines Inc.'), ('UA', 'United Air Lines Inc.'),
    ('US', 'US Airways Inc.'), ('VX', 'Virgin America'),
    ('WN', 'Southwest Airlines Co.'), ('YV', 'Mesa Airlines Inc.');
SQL
