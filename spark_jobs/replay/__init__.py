"""Computes a pipeline again from Kafka, by its ledger, and compares the results."""
