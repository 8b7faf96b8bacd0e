"""Links: rows that belong to an entry, and follow it to its end."""
