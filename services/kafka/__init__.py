"""Ask and configure the broker: topics, positions, transactions, rights."""
