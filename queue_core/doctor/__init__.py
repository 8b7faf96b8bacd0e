"""The questions of `stickybus doctor` about entries and nodes."""
