"""What pipelines' own Python functions report, and how they fail."""
