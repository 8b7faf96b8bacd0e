"""Audits: the figures of a history, exact, by Spark."""
