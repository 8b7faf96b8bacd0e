"""The engine that a bus or service stands on."""

from __future__ import annotations

from queue_core.engine import QueueEngine
from queue_core.maintenance import Maintenance


class FacePart:
    """Has the engine, which its parts call."""

    def __init__(self, engine: QueueEngine) -> None:
        self._engine = engine
        self._maintenance = Maintenance(engine)
