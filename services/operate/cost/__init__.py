"""Computes the cost of a pipeline, from measurements of its batches and a price file.

``docs/cost.md`` has every formula. Everything is pure, except reading the file of
prices.
"""
