"""What operators do to a pipeline: pause, drain, discard, erase, redrive."""
