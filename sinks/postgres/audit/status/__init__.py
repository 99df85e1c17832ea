"""Where a pipeline stands, what it costs and what holds it up."""
