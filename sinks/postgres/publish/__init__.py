"""The one transaction that publishes a batch, and the moves that it makes."""
