"""Tests of the room."""
