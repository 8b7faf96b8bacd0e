"""A work queue at a service's address."""
