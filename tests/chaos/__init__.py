"""Chaos on real servers: nodes and posters as processes, faults by scenario, and a judge.

`python -m tests.chaos --help`; `make chaos` and `make soak` call it. A run is one scenario on one database: steady load,
the scenario's faults, then rest, then the verdict.
"""
