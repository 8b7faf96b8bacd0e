"""Chaos on real servers: nodes and posters as processes, faults by scenario, and a judge.

`make chaos` and `make soak` call it; see `python -m tests.chaos --help`. A run is one scenario on
one database: steady load, the scenario's faults, then rest, then the verdict.
"""
