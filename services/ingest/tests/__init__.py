"""Tests of the HTTP service that need no server."""
