"""The kinds of outputs: what tables each has, with which columns and partials."""
