"""Spark's data source: history read, streamed and written."""
