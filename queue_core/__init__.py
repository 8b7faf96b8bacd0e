"""The engine: the way of an entry from its post to history.

It knows neither buses nor notification queues. The way is `posting`, `claim_loop` and
`claiming`, `running`, `finishing`. `storage` writes, `holding` remembers, and `cluster` takes over
from the dead. `parts` wires them, and `lifecycle` starts and stops them.
"""
