"""What the studies share: servers, events, drivers, and what is read of them."""
