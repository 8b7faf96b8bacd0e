"""Event subscriptions, the persistent bus and the in-memory bus."""
