"""How handlers are called."""
