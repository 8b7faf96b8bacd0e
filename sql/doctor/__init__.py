"""What `stickybus doctor` asks of every database."""
