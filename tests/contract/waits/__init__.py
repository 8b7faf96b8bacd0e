"""Entries that wait for others."""
