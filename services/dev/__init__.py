"""Tests and builds the product: benchmarks, chaos, demo, images, bill of materials."""
