"""How databases read for the engine's statements."""
