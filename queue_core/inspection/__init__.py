"""The reads of an inspector, by their subjects."""
