"""What ``bench dedup`` runs: a driver with nothing but IDs, and Spark's own way.

The product's part of it is all there: the claim of an epoch, the holder of IDs with its
copy of the catalog, staging, and the publish transaction. What is left out is what has
nothing to do with IDs: Kafka, Spark's tasks, decoding, and results.
"""
