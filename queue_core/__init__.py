"""The engine: the way of an entry from its post to history.

It knows neither buses nor notification queues. A reader begins with `lifecycle` and `parts`.
"""
