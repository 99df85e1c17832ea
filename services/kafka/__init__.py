"""What the broker holds and allows: topics, positions, transactions, rights."""
