"""Threads, clocks, locks and logs: a part that knows of no entry."""
