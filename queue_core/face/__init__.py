"""The face that buses and services have in common."""
