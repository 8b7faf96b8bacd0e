"""What a user asks about entries, waiting or ended."""
