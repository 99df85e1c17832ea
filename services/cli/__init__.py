"""The ``tallyweir`` command."""
