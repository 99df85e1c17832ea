"""The demo: real flights, hostile conditions, and a count that owes Tallyweir nothing.

- ``scenario``: what goes wrong when; decided by the seed alone.
- ``world``: servers, topic and tables of the demo's own.
- ``flight_stream``: sends the flights with faults, in parts.
- ``ledger``: what Postgres says about the driver's work.
- ``drill``: all of these together, from the first event to the drained driver.
- ``expected_results``: what must come of the flights, counted from the flights.
- ``independent_checks``: that, held against the tables.
"""
