"""Claims: the way of a node to entries that are due."""
