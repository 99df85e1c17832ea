"""The services of docker/compose.yaml, run by testcontainers and made to suffer."""
