"""The monitor: a page for the operator on call, and the numbers behind it.

It reads the home database and Kafka, and changes nothing.

- ``home_reader``: a few connections to the home, shared by all viewers.
- ``watcher``: looks at all pipelines every few seconds, once for all viewers.
- ``shown_pipeline``: what the monitor knows of pipelines, as JSON.
- ``application``: which code answers which path.
- ``service``: the process.
- ``page``: what the browser gets; it has no build step and loads nothing from
  elsewhere.
"""
