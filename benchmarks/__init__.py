"""Benchmarks: the costs of posting and delivery on each database, measured like a product.

Each scenario runs on a fresh database of a durable server, with the shipped defaults unless a
setting is the one that it compares, and reports only after it has found every entry exactly once in
history.
"""
