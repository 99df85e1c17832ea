"""Processes die at each point, and nothing is lost or doubled."""
