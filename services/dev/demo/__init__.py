"""The demo: real flights, hostile conditions, and a count independent of Tallyweir.

- ``scenario``: what goes wrong and when; decided by the seed alone.
- ``demo_world``: the demo's own servers, topic and tables.
- ``drill``: runs all of these, from the first event to the drained driver.
- ``external``: the demo against a system that already runs.
- ``expected_results``: the expected results, counted from the flights.
- ``independent_checks``: compare the expected results with the tables.
"""
