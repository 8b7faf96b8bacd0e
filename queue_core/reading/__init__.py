"""Users' reads of entries, waiting or ended."""
