"""A task's share of the windows: which ones an event falls into, and partials."""
