"""The program of ``bench dedup``: a driver that has only IDs.

The driver has all of the product's parts for IDs: the claim of an epoch, the holder of
IDs with its copy of the catalog, staging, and the publish transaction. It leaves out
the parts that have nothing to do with IDs: Kafka, Spark's tasks, decoding, and results.
"""
