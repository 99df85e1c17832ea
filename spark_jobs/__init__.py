"""Events from Kafka through Spark: pipelines, their stages, the bridge to the sinks."""
