"""What the benchmarks run in a process of Spark's."""
