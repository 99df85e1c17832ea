"""The monitor and the alerts service."""
