"""Unit tests of the producers; no broker."""
