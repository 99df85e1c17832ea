"""Forks, snapshots, restores and versions of pipelines."""
