"""What others read of a pipeline: messages for Kafka, logs, gauges."""
