"""How the values of topics are written: one package or module for each format."""
