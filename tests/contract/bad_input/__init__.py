"""Input that no program should give, in calls and in tables."""
