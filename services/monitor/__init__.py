"""The monitor: a page for the operator on call, and the numbers behind it.

It reads the home database and Kafka. Only its acts change anything.

- ``home_reader``: a few connections to the home, shared by all viewers.
- ``watcher``: looks at all pipelines every few seconds, once for all viewers.
- ``application``: which code answers which path.
- ``service``: the process.
- ``page``: what the browser gets; it has no build step and loads nothing from
  elsewhere.
"""
