"""Notification queues."""
