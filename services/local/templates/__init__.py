"""Ready pipelines: each is a valid pipeline file with parameters that users set."""
