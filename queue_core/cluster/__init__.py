"""Nodes, their leases, and who takes over from the dead."""
