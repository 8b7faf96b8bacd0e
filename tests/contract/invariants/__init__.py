"""Invariants of the engine."""
