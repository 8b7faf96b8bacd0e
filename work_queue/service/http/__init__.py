"""The wire of HTTP and JSON."""
