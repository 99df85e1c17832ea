"""Records of a pipeline for other readers: messages for Kafka, logs, gauges."""
