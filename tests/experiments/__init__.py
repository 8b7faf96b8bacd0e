"""Experiments behind the decisions in `docs/adr`: each decision's reason, kept runnable.

They use tables of their own and nothing of the product, so that a failure here means that a
database or a library has changed its behaviour, and the decision that rests on it must be read
again.
"""
