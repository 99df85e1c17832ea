"""One batch after another: the bridge to the protocol, and the jobs that stage."""
