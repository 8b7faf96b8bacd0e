"""Properties that hold for all input.

Examples are the same on every machine, and a failing one comes with code that repeats it.
"""

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
