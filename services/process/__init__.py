"""Parts shared by processes: endpoints, a server, logs, tenure, a driver as a child."""
