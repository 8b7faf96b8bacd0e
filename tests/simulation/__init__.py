"""A seeded simulator: the engine's real code, several nodes in one thread, and a scheduler that decides every step."""
