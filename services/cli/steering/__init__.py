"""Acts of operators on pipelines, each with its reason."""
