"""What a pipeline costs, from what its batches have measured and a file of prices.

``docs/cost.md`` has every formula. Pure but for reading the file of prices.
"""
