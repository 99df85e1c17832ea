"""What verify, why and status find, in databases that were damaged by hand."""
