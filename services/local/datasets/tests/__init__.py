"""Unit tests of the data sets."""
