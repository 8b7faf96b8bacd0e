"""Workers: they claim tasks, run a handler, and write what it returns."""
