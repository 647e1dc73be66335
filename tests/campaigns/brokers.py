"""What a campaign kills: one broker or several, of either kind, with kill -9 and a new start as one step.

Owns: `Brokers`, the same for one node and for a cluster. A kill takes one node, drawn by the caller's random
numbers, sometimes again while it is starting; afterwards it answers again. Invariant: nobody is killed while
another node is down.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from compat_tests.clusters import KafkaCluster, LockstepCluster
from compat_tests.targets import ROOT, KafkaTarget, LockstepTarget, Target, TargetFailed

AGAIN_SHARE = 0.15
"""Of the kills, those followed by another while the node is starting."""


class Brokers:
    """Started by `start`, ended by `close`."""

    def __init__(
        self,
        kind: str,
        nodes: int,
        settings: Mapping[str, str],
        directory: Path,
        program: Sequence[str] | None = None,
    ) -> None:
        """`program`: what one node of ours runs instead of `lockstep`."""
        self._cluster: KafkaCluster | LockstepCluster | None = None
        self.nodes: dict[int, Target]
        if kind == "kafka":
            settings = {"log.flush.interval.messages": "1", **settings}
        if nodes == 1:
            made = KafkaTarget(settings, directory=directory, heap="512M") if kind == "kafka" else None
            self.nodes = {1: made or _our_own(settings, directory, program)}
        else:
            if kind == "kafka":
                self._cluster = KafkaCluster(nodes, settings, directory=directory, heap="512M")
            else:
                self._cluster = LockstepCluster(nodes, settings, directory=directory)
            self.nodes = self._cluster.nodes
        self.kills = 0
        self.kills_while_starting = 0

    def start(self) -> None:
        """TargetFailed."""
        if self._cluster is None:
            self.nodes[1].start()
        else:
            self._cluster.start()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def kill(self, rng: random.Random) -> None:
        """One of the nodes, and start it again. TargetFailed when one had ended by itself."""
        for node in self.nodes.values():
            if not node.running:
                raise TargetFailed(f"a node ended by itself with {node.exit_code}\n{node.log_tail()}")
        node = self.nodes[rng.choice(sorted(self.nodes))]
        node.kill9()
        self.kills += 1
        if rng.random() < AGAIN_SHARE:
            _kill_while_starting(node, rng.uniform(0.0, 0.5))
            self.kills_while_starting += 1
        node.start()
        if self._cluster is not None:
            self._cluster.await_members(self.nodes)

    def log_tail(self) -> str:
        return "\n".join(node.log_tail() for node in self.nodes.values())

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


def _our_own(settings: Mapping[str, str], directory: Path, program: Sequence[str] | None) -> LockstepTarget:
    return LockstepTarget(
        settings, directory=directory, command=program, environment={"PYTHONPATH": str(ROOT)}
    )


def raise_on_term() -> None:
    """SIGTERM ends a campaign like an exception, so that everything it started is ended."""

    def on_term(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, on_term)


def _kill_while_starting(node: Target, after_s: float) -> None:
    def start() -> None:
        with contextlib.suppress(TargetFailed):  # that is what we are about
            node.start()

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    time.sleep(after_s)
    deadline = time.monotonic() + 5
    while not node.running and starting.is_alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    node.kill9()
    starting.join()
    node.kill9()
