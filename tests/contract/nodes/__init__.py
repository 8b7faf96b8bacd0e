"""Nodes, their leases, their starts and stops, and the reaper."""
