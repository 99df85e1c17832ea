"""The kinds of outputs, as pipelines declare them."""
