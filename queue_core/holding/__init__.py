"""What this node holds, and what it may hold without knowing."""
