"""What buses have in common with services."""
