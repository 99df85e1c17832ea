"""Unit tests of the contracts; no servers."""
