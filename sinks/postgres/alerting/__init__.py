"""What the alerts service keeps in the home database: alerts, notifications, facts."""
