"""Policies for due dates that have passed unseen."""

from __future__ import annotations

from enum import StrEnum


class MissedPolicy(StrEnum):
    """The treatment of due dates that passed while no node ran."""

    FIRE_ONCE = "FIRE_ONCE"
    """One firing: that of the latest of them."""
    FIRE_ALL = "FIRE_ALL"
    """A firing for each, oldest first; of more than `MAX_FIRINGS`, the latest."""
    SKIP = "SKIP"
    """None, unless the latest is no later than a grace time."""
