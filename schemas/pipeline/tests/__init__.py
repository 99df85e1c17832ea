"""Unit tests of the pipeline model; no Spark."""
