"""HTTP in front of Kafka, for producers that speak no Kafka.

A request is answered 202 only after the broker has reported where each of its events
lies. Everything that comes from outside is taken for hostile until it has been
checked: who sends comes before what is sent, and a limit before each thing that
could grow.

- ``server``: the process: start, signals, drain.
- ``application``: which path is answered by what.
- ``event_endpoint``: ``POST /v1/events/{topic}``, from the headers to the answer.
- ``request_head``, ``request_body``: what of a request counts, within limits.
- ``api_keys``, ``key_file``: who sends, and what he may.
- ``strict_json``, ``json_records``, ``event_forms``: bodies as records of a contract.
- ``event_ids``: the producer's ID and whose it is.
- ``served_topics``: what the pipeline files say about a topic.
- ``kafka_sender``: messages to Kafka, and the broker's reports back.
- ``metrics``, ``openapi``: what others read about the service.
"""
