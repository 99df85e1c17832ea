"""What the alerts service keeps in the home database.

- ``alert``: an alert, and a notification of it, as values.
- ``alert_book``: the service's one session: its lock, alerts and due notifications.
- ``pipeline_facts``: facts about pipelines that rules need besides the overview.
- ``firing``: the alerts that fire now, for any reader.
"""
