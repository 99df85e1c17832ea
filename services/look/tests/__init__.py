"""Tests of looks at topics."""
