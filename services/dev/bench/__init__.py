"""Measurements: throughput beside a peer, and latency of small batches."""
