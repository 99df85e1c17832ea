"""Commands that answer questions about pipelines, and change nothing."""
