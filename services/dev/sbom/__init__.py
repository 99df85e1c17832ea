"""What Tallyweir is made of: every locked part with its hashes and its licence."""
