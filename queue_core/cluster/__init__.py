"""Nodes, their leases, and the heirs of the dead."""
