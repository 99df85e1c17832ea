"""Connections to Postgres, what they are pinned to, names, statements and errors."""
