"""Commands that write, start and update pipelines."""
