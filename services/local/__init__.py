"""What runs on one machine: embedded Kafka and Postgres, datasets, templates."""
