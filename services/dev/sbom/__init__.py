"""Tallyweir's bill of materials: every locked part with its hashes and its licence."""
