"""From a declared pipeline to its tables in Postgres: ``layout_builder``."""
