"""All that only SQLite does."""
