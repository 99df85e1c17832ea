"""Describes the tables of a pipeline in Postgres."""
