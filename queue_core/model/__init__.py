"""What an entry is, and the rules that need no database."""
