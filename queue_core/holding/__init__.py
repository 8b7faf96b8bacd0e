"""The entries that this node holds, or may hold without knowing."""
