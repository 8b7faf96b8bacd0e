"""What `stickybus doctor` asks about entries and nodes."""
