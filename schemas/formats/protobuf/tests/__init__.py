"""Tests of messages of Protocol Buffers."""
