"""What the parts of a pipeline check themselves by: names, durations, problems."""
