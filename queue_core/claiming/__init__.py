"""How a node comes by entries that are due."""
