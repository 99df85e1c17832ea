"""Mutants: deliberate mistakes in the code, each of which a test must notice.

A test that has never failed proves little. Each file in ``patches`` says in words what
it breaks, names the test that must fail because of it, and has the change as a diff.
"""
