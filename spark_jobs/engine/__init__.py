"""The Spark engine: its session and settings, its processes, and how they end."""
