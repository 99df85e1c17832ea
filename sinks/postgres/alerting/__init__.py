"""What the alerts service keeps in the home database.

- ``alert``: an alert, and a notification of it, as values.
- ``alert_book``: the service's one session: its lock, alerts, and what is to be sent.
- ``pipeline_facts``: what rules ask of pipelines beside the overview.
- ``firing``: what fires now, for everybody who looks.
"""
