"""The model of an entry, and the rules that need no database."""
