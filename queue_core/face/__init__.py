"""What a bus and a service have in common."""
