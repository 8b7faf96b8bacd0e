"""Schedules whose tasks the database refuses."""

from __future__ import annotations

REFUSED = "work_tasks", "value_json", '"refused"'
"""Tasks with the value "refused"."""
