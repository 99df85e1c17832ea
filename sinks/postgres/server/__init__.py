"""Connections to Postgres, their pinned settings, names, statements and errors."""
