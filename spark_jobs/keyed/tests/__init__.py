"""Unit tests of phase 2b's pure parts."""
