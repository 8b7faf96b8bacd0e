"""Property tests: the same examples on every machine, as slow as the machine is."""

from hypothesis import settings

# A deadline would fail on a loaded machine; a random example would fail in someone else's change.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")
