"""What the integration tests are made with: drivers as processes, producers."""
