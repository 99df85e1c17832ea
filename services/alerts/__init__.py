"""The alerts service: looks at all pipelines, and tells people what they asked for.

- ``rule``: what may be asked, and what each condition sees in an observation.
- ``rules_file``: rules and channels, from YAML.
- ``observation``, ``observer``: what rules look at, and who reads it.
- ``retention``: how long Kafka will keep what is unread.
- ``lifecycle``: from an observation to an alert's next state; pure.
- ``channel``, ``webhook``, ``email_channel``, ``alertmanager``: who is told, and how.
- ``tenure``: what the one service that holds the home's lock does.
- ``service``: the process.
"""
