"""Records beside the ledger: messages for Kafka, logs, gauges, alerts, profiles."""
