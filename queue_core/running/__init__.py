"""The calls of handlers."""
