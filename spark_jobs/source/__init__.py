"""Read records and offsets from Kafka; name the columns in which they arrive."""
