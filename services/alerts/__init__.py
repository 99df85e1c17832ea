"""The alerts service: looks at all pipelines, and sends alerts by rules.

- ``alert_rule``: the kinds of rules, and how each condition judges an observation.
- ``rules_file``: rules and channels, from YAML.
- ``observer``: what rules judge, and the code that reads it.
- ``lifecycle``: from an observation to an alert's next state; pure.
- ``channels``: where notifications go, and how.
- ``service``: the process, and what it does while it holds the home's lock.
"""
