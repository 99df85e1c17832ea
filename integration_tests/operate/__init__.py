"""Ingest, scaling, costs, profiles, the terminal, and what deploys them."""
