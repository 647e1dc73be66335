"""Broker processes, each with its data on a disk of its own that can lose power.

Owns: the disks, the processes and their addresses. One node is started as everybody starts one; more than one
know each other by `--node-id` and `--peers`. A power loss is SIGKILL of the processes, then the loss of what
their disks had not flushed, then power again; the order keeps a dying process from writing to its next life.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TypedDict, Unpack

from compat_tests.clusters import free_ports
from compat_tests.probe import HOST
from compat_tests.targets import ROOT, LockstepTarget, TargetFailed
from tests.power.disk import PowerDisk
from tests.power.volume import Loss

IMPORTS = {"PYTHONPATH": str(ROOT)}
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 2.0
MAX_OPERATIONS = 40
NAMES_SHARE = 0.3
"""Of the disks that stop first, those that stop with names changed and not kept, as of a new log file."""


class NodeOptions(TypedDict):
    """Where a node keeps its log, and the words before `serve` when they are not the usual ones."""

    directory: Path
    command: Sequence[str] | None


class Node(LockstepTarget):
    """One broker on its disk; `peers` is empty for a single one."""

    def __init__(
        self,
        node_id: int,
        peers: str,
        disk: PowerDisk,
        settings: Mapping[str, str],
        **options: Unpack[NodeOptions],
    ) -> None:
        super().__init__(settings, ready_timeout_s=READY_TIMEOUT_S, environment=IMPORTS, **options)
        self.node_id = node_id
        self.disk = disk
        self.data_dir = disk.path / "data"
        self._peers = peers

    def _command(self) -> list[str]:
        among = ["--node-id", str(self.node_id), "--peers", self._peers] if self._peers else []
        return [*super()._command(), *among]


class Nodes:
    """See the module. Closing ends the processes first, then the disks."""

    def __init__(
        self,
        count: int,
        settings: Mapping[str, str],
        directory: Path,
        flush_ms: float,
        command: Sequence[str] | None = None,
    ) -> None:
        with contextlib.ExitStack() as undo:
            disks = [undo.enter_context(PowerDisk(flush_ms)) for _ in range(count)]
            self._undo = undo.pop_all()
        peers = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(free_ports(count), 1))
        self.all = [
            Node(
                number,
                peers if count > 1 else "",
                disk,
                settings,
                directory=directory / f"node-{number}",
                command=command,
            )
            for number, disk in enumerate(disks, 1)
        ]

    @property
    def bootstrap(self) -> str:
        """Every node's address."""
        return ",".join(node.bootstrap for node in self.all)

    def start(self, which: Sequence[Node]) -> list[float]:
        """All at once; seconds until each was ready. TargetFailed."""
        with ThreadPoolExecutor(len(which)) as pool:
            return list(pool.map(lambda node: node.start(), which))

    def stop_disks(self, which: Sequence[Node], random: Random) -> None:
        """One disk stops at a drawn operation of its own, or in time; the others with it."""
        first = random.choice(which)
        if random.random() < NAMES_SHARE:
            first.disk.cut(random.randrange(2), names=True)
        else:
            first.disk.cut(random.randrange(MAX_OPERATIONS))
        first.disk.wait_until_cut(STOP_TIMEOUT_S)
        for node in which:
            node.disk.cut()

    def lose_power(self, which: Sequence[Node], random: Random) -> Loss:
        """SIGKILL, loss, power on; the nodes are not started again."""
        for node in which:
            if node.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(node.pid, signal.SIGKILL)
        total = Loss()
        for node in which:
            total += node.disk.lose(random.randrange(2**31))
        for node in which:
            node.kill9()
        for node in which:
            node.disk.power_on()
        return total

    def lose_power_while_starting(self, which: Sequence[Node], random: Random) -> Loss:
        """Starts them, and takes the power after some operations of one disk, or of a moment."""

        def start() -> None:
            with contextlib.suppress(TargetFailed):
                self.start(which)

        starting = threading.Thread(target=start)
        kind = random.random()
        if kind < NAMES_SHARE:
            random.choice(which).disk.cut(random.randrange(12), names=True)
        elif kind < 0.8:
            random.choice(which).disk.cut(random.randrange(1, 2 * MAX_OPERATIONS))
        starting.start()
        while starting.is_alive() and not all(node.running for node in which):
            time.sleep(0.002)
        time.sleep(random.uniform(0.3, 1.5))
        loss = self.lose_power(which, random)
        starting.join()
        return loss

    def close(self) -> None:
        """Ends everything; the brokers' logs stay in the directory."""
        for node in self.all:
            node.close()
        self._undo.close()
