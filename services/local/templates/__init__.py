"""Ready pipelines: each a valid pipeline file, and what a user may set in it."""
