"""Commands that start services, and prepare the servers that they need."""
