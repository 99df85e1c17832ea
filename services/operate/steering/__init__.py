"""Acts on a pipeline, and their reports, for the command line and the monitor's page.

The acts themselves are in ``tallyweir.sinks.postgres.steering``; this package connects
them with Kafka and with people.
"""
