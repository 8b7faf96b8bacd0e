"""Calls of a work queue as bytes: what its clients and its service say to each other."""
