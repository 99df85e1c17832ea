"""Pipeline files as trees of YAML with lines, and the problems found in them."""
