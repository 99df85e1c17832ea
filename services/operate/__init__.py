"""The work of an operator on pipelines: acts, redrives, replays, profiles, costs."""
