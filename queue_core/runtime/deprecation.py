"""Names that go with 1.0."""

import warnings


def deprecated(old: str, new: str) -> None:
    """Warn the caller's caller that `old` is called `new` now."""
    warnings.warn(f"{old} goes with 1.0: use {new}", DeprecationWarning, stacklevel=3)
