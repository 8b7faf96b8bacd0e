"""Pauses of queues and handlers."""
