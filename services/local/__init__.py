"""Tools for one machine: embedded Kafka and Postgres, datasets, templates."""
