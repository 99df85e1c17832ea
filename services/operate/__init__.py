"""What an operator does with pipelines: acts, redrives, replays, profiles, costs."""
