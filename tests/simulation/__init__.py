"""A seeded simulator: the engine's code, nodes in one thread, and a scheduler of every step."""
