"""The demo's processes: started, killed and stopped by their parent."""

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Self

from stickybus.demo.node import Share, run_node

STOP_SECONDS = 20.0


class NodeDiedError(Exception):
    """A node ended although nobody had killed it."""


class Cluster:
    """The nodes by name. Leaving it as a context ends nodes that still run."""

    def __init__(self, shares: Iterable[Share]) -> None:
        spawn = get_context("spawn")
        self._processes: dict[str, SpawnProcess] = {}
        self._pipes: dict[str, Connection] = {}
        for share in shares:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
                target=run_node, args=(share, theirs), name=share.node_name, daemon=True
            )
            process.start()
            theirs.close()  # so that its end, if it dies, is seen here
            self._processes[share.node_name], self._pipes[share.node_name] = process, ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()

    def pid(self, name: str) -> int:
        """Return the process id of a node, also of a killed one."""
        return self._processes[name].pid or 0

    def say(self, word: str) -> None:
        """Tell all nodes to go on: to post, and later to stop."""
        for pipe in self._pipes.values():
            pipe.send(word)

    def heard(self, timeout_seconds: float) -> list[tuple[str, str]]:
        """Return the words that nodes have said meanwhile, as (node, word), after a limited wait.

        Raises NodeDiedError.
        """
        names = {id(pipe): name for name, pipe in self._pipes.items()}
        said = []
        for ready in wait(list(self._pipes.values()), timeout_seconds):
            name = names[id(ready)]
            try:
                said.append((name, str(self._pipes[name].recv())))
            except (EOFError, ConnectionResetError) as error:
                raise NodeDiedError(f"{name} ended by itself; see its log") from error
        return said

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._processes[name].kill()
        self._processes[name].join()
        self._pipes.pop(name).close()

    def stop(self) -> bool:
        """Let the other nodes stop in order, and return whether all ended with exit code 0."""
        self.say("stop")
        for name in self._pipes:
            self._processes[name].join(STOP_SECONDS)
        return all(self._processes[name].exitcode == 0 for name in self._pipes)
