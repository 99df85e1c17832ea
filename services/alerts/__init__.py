"""The alerts service: looks at all pipelines, and sends alerts by rules.

- ``rule``: the kinds of rules, and how each condition judges an observation.
- ``rules_file``: rules and channels, from YAML.
- ``observation``, ``observer``: what rules judge, and the code that reads it.
- ``retention``: how long Kafka will keep unread records.
- ``lifecycle``: from an observation to an alert's next state; pure.
- ``channel``, ``webhook``, ``email_channel``, ``alertmanager``: where notifications go,
  and how.
- ``tenure``: what the service does while it holds the home's lock.
- ``service``: the process.
"""
