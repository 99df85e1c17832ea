"""A pipeline computed once more from Kafka, by its ledger, and held against itself."""
