"""Handlers that are made by a call, for a `Worker`."""
