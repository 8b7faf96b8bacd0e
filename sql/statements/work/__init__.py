"""The statements on the tables of the work queue."""
