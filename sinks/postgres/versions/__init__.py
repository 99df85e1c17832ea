"""Versions of a pipeline: what each ran as, and how one can follow another."""
