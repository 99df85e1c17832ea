"""Databases beside the home: prepared branches, and who finishes them."""
