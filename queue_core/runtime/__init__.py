"""Threads, clocks, locks and logs: what knows of no entry."""
