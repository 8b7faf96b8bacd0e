"""How outcomes are written."""
