"""The monitor's pages as a browser shows them."""
