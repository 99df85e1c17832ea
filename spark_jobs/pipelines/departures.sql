-- The airlines that departures looks up.
CREATE TABLE IF NOT EXISTS airlines (
    code text PRIMARY KEY,
    name text NOT NULL
);

INSERT INTO airlines (code, name)
VALUES
    ('9E', 'Endeavor Air Inc.'),
    ('AA', 'American Airlines Inc.'),
    ('AS', 'Alaska Airlines Inc.'),
    ('B6', 'JetBlue Airways'),
    ('DL', 'Delta Air Lines Inc.'),
    ('EV', 'ExpressJet Airlines Inc.'),
    ('F9', 'Frontier Airlines Inc.'),
    ('FL', 'AirTran Airways Corporation'),
    ('HA', 'Hawaiian Airlines Inc.'),
    ('MQ', 'Envoy Air'),
    ('OO', 'SkyWest Airlines Inc.'),
    ('UA', 'United Air Lines Inc.'),
    ('US', 'US Airways Inc.'),
    ('VX', 'Virgin America'),
    ('WN', 'Southwest Airlines Co.'),
    ('YV', 'Mesa Airlines Inc.')
ON CONFLICT (code) DO NOTHING;
