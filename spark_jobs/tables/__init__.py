"""From a pipeline to its tables in Postgres."""
