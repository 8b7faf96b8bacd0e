"""The engine: an entry's way from its post to history, without a word about buses or notification queues."""
