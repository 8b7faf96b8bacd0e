"""The schema and its upgrades."""
