"""Posts to a bus, from the call to the entry."""
