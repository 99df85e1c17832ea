"""``doctor``: what it checks on this machine and in its servers."""
