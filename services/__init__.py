"""Entry points that run as a process of their own, one folder each."""
