"""One batch after the other: the bridge to the protocol and the jobs that stage."""
