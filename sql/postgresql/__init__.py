"""All that only PostgreSQL does."""
