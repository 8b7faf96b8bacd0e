"""Upkeep of history: rows are archived, deleted, compacted, expired, erased and posted again."""
