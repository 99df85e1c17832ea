"""The example of predict in docs/pipelines.md."""
