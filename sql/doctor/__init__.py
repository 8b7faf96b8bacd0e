"""The questions of `stickybus doctor` to every database."""
