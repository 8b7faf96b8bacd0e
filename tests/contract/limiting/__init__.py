"""Limits of queues."""
