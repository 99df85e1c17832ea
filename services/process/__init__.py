"""What every process needs: endpoints, a server, logs, tenure, a driver as a child."""
