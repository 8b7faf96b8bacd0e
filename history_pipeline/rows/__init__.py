"""Rows of history: their columns, what is read of them, and their hashes, by Spark and by Arrow."""
