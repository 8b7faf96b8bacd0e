"""What belongs to an entry beside its row, and follows it to its end."""
