"""Properties that hold for all input: the same examples on every machine, and the code that repeats a failing one."""

from hypothesis import HealthCheck, settings

# A deadline would fail on a loaded machine; a random example would fail in someone else's change.
settings.register_profile(
    "properties",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("properties")
