"""Benchmarks: throughput compared with peers, latency, cost, scale and endurance."""
