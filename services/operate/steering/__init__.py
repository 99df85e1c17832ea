"""What the command line and the monitor's page both do to a pipeline, and say of it.

The acts themselves are ``sinks.postgres.steering``; here they meet Kafka and people.
"""
