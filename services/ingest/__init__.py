"""HTTP in front of Kafka, for producers that do not speak Kafka.

The service answers 202 only after the broker has reported the place of each event. It
treats all input as hostile until it has checked it: it authenticates the sender before
it looks at the body, and it sets a limit on everything that could grow.

- ``server``: the process and its routes: start, signals, drain.
- ``event_endpoint``: ``POST /v1/events/{topic}``, from the headers to the answer.
- ``request``: the headers that matter, and bodies within limits.
- ``api_keys``: who sends, and what a producer may do.
- ``event_forms``: bodies as records of a contract.
- ``scoped_ids``: the producer's ID, and which producer it belongs to.
- ``served_topics``: what the pipeline files say about a topic.
- ``kafka_sender``: sends messages to Kafka, and returns the broker's reports.
- ``metrics``, ``openapi``: what the service publishes about itself.
"""
