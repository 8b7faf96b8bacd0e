"""The reads of an inspector, by what they look at."""
