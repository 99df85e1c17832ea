"""The monitor: a page for whoever is on call, and the numbers behind it.

It reads the home database and Kafka, and changes nothing.

- ``home_reader``: a few connections to the home, shared by all who look.
- ``watcher``: looks at all pipelines every few seconds, once for everybody.
- ``shown_pipeline``: what is known of pipelines, as JSON.
- ``application``: which path is answered by what.
- ``service``: the process.
- ``page``: what the browser gets; no build step, nothing from elsewhere.
"""
