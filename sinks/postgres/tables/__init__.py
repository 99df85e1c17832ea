"""Creates, checks and guards users' tables, and notes which pipeline owns each."""
