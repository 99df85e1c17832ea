"""Unit tests of the Avro format; no servers."""
