"""Checks of audits: rows, IDs and branches against the ledger.

``verification`` checks the ledger itself.
"""
