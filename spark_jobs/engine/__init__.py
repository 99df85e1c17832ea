"""The Spark engine: its session, its settings, its processes and their end."""
