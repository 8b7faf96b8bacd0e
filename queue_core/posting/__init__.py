"""How an entry comes into the table."""
