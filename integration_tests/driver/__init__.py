"""A whole driver reads a topic and writes tables: what goes in and comes out."""
