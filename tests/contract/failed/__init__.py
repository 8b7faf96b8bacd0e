"""Failed entries, and changes of all entries that match."""
