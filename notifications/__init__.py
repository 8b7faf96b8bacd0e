"""Notification queues: entries delivered at a date, by queue name, once or on a recurring schedule."""
