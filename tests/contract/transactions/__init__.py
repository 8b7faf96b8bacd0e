"""Posts and reads in a caller's transaction."""
