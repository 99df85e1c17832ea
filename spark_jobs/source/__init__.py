"""What Kafka holds: reading records and offsets, and the columns they arrive in."""
