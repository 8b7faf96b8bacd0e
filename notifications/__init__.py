"""Notification queues: entries delivered at a date, once or on a recurring schedule."""
