"""`python -m stickybus.demo`."""

from stickybus.demo import run

if __name__ == "__main__":
    raise SystemExit(run())
