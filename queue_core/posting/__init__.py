"""The way of an entry into the table."""
