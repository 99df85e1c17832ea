"""Tests of the ready pipelines."""
