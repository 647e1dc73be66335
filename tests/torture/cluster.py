"""Lockstep nodes as processes, each in a network namespace of its own, and what may be done to them.

    with Cluster(3, directory) as cluster:
        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        cluster.network.cut("n1", "n2")

Owns: the network, the processes (each its own process group), their data directories below `directory`,
their disks and cgroups when asked for. Invariant: `close()` ends and removes all of it, also when it was
only half made. A node that ends without having been killed is found by `died()`.
Clients belong into the host "client"; `ask` runs a function there. Faults have their undo in `faults.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from compat_tests.raw import ConnectionClosed, RawConnection
from lockstep.broker.settings.kafka_names import RACK_AWARE_SELECTOR
from tests.torture.disks import SmallDisk, Throttle
from tests.torture.network import Inside, Network

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENT = "client"
KAFKA_PORT, PEER_PORT = 9092, 19092
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "replica.selector.class": RACK_AWARE_SELECTOR}
"""Each node stands in a rack of its own: some consumers name one, and read from followers."""
NOT_YET = (OSError, EOFError, ConnectionClosed, AssertionError, KeyError)
"""What an answer that is not to be had yet looks like."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


class ClusterFailed(RuntimeError):
    """The cluster did not become ready, or a node ended by itself."""


class Node:
    """One process, started, killed, stopped and continued by its id only."""

    def __init__(self, node_id: int, directory: Path, throttle: Throttle | None) -> None:
        self.node_id = node_id
        self.host = f"n{node_id}"
        self.directory = directory
        self.data_dir = directory / "data"
        self.disk: SmallDisk | None = None
        self.throttle = throttle
        self.log_path = directory / "broker.log"
        self.wanted = False
        """Whether it should be running; False after a kill."""
        self.paused = False
        self.words: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Starts the process, on the data it has; does not wait for it to serve."""
        if self.running:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        if self.throttle is not None:
            self.throttle.add(self._process.pid)
        self.wanted = True

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.wanted = False
        self.paused = False
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(30)

    def stop(self, timeout_s: float = 30.0) -> int | None:
        """SIGTERM; its exit status, None when it had to be killed."""
        self.resume()
        self.wanted = False
        if self._process is None:
            return 0
        self._signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def pause(self) -> None:
        self.paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.paused = False
        self._signal(signal.SIGCONT)

    def log_tail(self, size: int = 3000) -> str:
        """The last it printed."""
        with contextlib.suppress(OSError):
            return self.log_path.read_bytes()[-size:].decode(errors="replace")
        return ""

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class Cluster:
    """See the module. `disk_bytes` gives each node such a disk, `throttled` a cgroup; `module` is run."""

    name = "lockstep"

    def __init__(
        self,
        size: int,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        disk_bytes: int = 0,
        throttled: bool = False,
        module: str = "lockstep",
    ) -> None:
        self.size = size
        self.module = module
        self.directory = directory
        self.nodes: dict[int, Node] = {}
        self.network = Network([*(f"n{number}" for number in range(1, size + 1)), CLIENT])
        self._client: Inside | None = None
        try:
            self._client = Inside(self.network, CLIENT, threads=4)
            for node_id in range(1, size + 1):
                self._add_node(node_id, {**SETTINGS, **(settings or {})}, disk_bytes, throttled)
        except BaseException:
            self.close()
            raise

    def _add_node(self, node_id: int, settings: Mapping[str, str], disk_bytes: int, throttled: bool) -> None:
        directory = self.directory / f"n{node_id}"
        throttle = Throttle(self.network.namespace(f"n{node_id}")) if throttled else None
        node = self.nodes[node_id] = Node(node_id, directory, throttle)
        if disk_bytes:
            node.disk = SmallDisk(directory, disk_bytes)
            node.data_dir = node.disk.mount_point / "data"
        node.words = self.command(node, {"broker.rack": f"rack-{node_id}", **settings})

    def command(self, node: Node, settings: Mapping[str, str]) -> list[str]:
        """The words that start a node."""
        words = [*self.network.inside(node.host), sys.executable, "-m", self.module, "serve"]
        words += ["--listen", self.bootstrap_of(node.node_id), "--data-dir", str(node.data_dir)]
        if self.size > 1:
            words += ["--node-id", str(node.node_id), "--peers", self.peers]
        return [*words, *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]

    # -- lifecycle --------------------------------------------------------------------------------------

    def start(self, timeout_s: float = 60.0) -> None:
        """Starts every node and waits until each answers and knows all. ClusterFailed."""
        for node in self.nodes.values():
            node.start()
        self.await_members(timeout_s)

    def await_members(self, timeout_s: float = 60.0) -> None:
        """Until every node lists every node. ClusterFailed."""
        deadline = time.monotonic() + timeout_s
        wanted = set(self.nodes)
        while True:
            seen = {node_id: self.members_by(node_id) for node_id in self.nodes}
            if self.size == 1 and seen[1] is not None:
                return
            if all(found is not None and set(found) == wanted for found in seen.values()):
                return
            if self.died() or time.monotonic() > deadline:
                tails = "\n".join(
                    f"-- node {node.node_id}: {node.log_tail()}" for node in self.nodes.values()
                )
                raise ClusterFailed(f"after {timeout_s:.0f} s the nodes list {seen}\n{tails}")
            time.sleep(0.1)

    def died(self) -> list[Node]:
        """Nodes that ended though nobody killed them."""
        return [node for node in self.nodes.values() if node.wanted and not node.running]

    def close(self) -> None:
        """Ends and removes everything."""
        for node in self.nodes.values():
            node.kill()
        if self._client is not None:
            self._client.close()
        for node in self.nodes.values():
            if node.disk is not None:
                node.disk.close()
            if node.throttle is not None:
                node.throttle.close()
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- facts ------------------------------------------------------------------------------------------

    @property
    def peers(self) -> str:
        """The value of --peers."""
        return ",".join(
            f"{node_id}@{self.network.address(f'n{node_id}')}:{PEER_PORT}"
            for node_id in range(1, self.size + 1)
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(self.bootstrap_of(node_id) for node_id in self.nodes)

    def bootstrap_of(self, node_id: int) -> str:
        """Only one node's address."""
        return f"{self.network.address(f'n{node_id}')}:{KAFKA_PORT}"

    # -- asked on the wire, from the clients' network ---------------------------------------------------

    def ask(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Runs `function` in the clients' network."""
        assert self._client is not None
        return self._client.call(function, *args, **kwargs)

    def call(self, node_id: int, api: str, api_version: int, **fields: Any) -> dict[str, Any]:
        """One request to one node. Raises one of NOT_YET."""

        def once() -> dict[str, Any]:
            raw = RawConnection(self.network.address(f"n{node_id}"), KAFKA_PORT, timeout_s=2.0)
            try:
                return raw.call(api, api_version, **fields)
            finally:
                raw.socket.close()

        return self.ask(once)

    def members_by(self, node_id: int) -> list[int] | None:
        """The nodes that one lists; None when it does not answer."""
        try:
            answer = self.call(node_id, "metadata", 9, topics=[], allow_auto_topic_creation=False)
        except NOT_YET:
            return None
        return sorted(int(broker["node_id"]) for broker in answer["brokers"])

    def leaders(self, topic: str, node_id: int | None = None) -> dict[int, int]:
        """Partition to leader, of those that have one, by the first node that answers (or by this one)."""
        for asked in [node_id] if node_id is not None else list(self.nodes):
            if not self.nodes[asked].running or self.nodes[asked].paused:
                continue
            try:
                wanted = [{"name": topic}]
                answer = self.call(asked, "metadata", 9, topics=wanted, allow_auto_topic_creation=False)
            except NOT_YET:
                continue
            rows = answer["topics"][0]["partitions"]
            found = {int(row["partition_index"]): int(row["leader_id"]) for row in rows}
            found = {partition: leader for partition, leader in found.items() if leader >= 0}
            if found:
                return found
        return {}

    def create_topic(self, topic: str, partitions: int, timeout_s: float = 30.0) -> None:
        """Creates it, with min(3, nodes) replicas; until every node names all leaders. ClusterFailed."""
        wanted = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": min(3, self.size),
            "assignments": [],
            "configs": [],
        }
        deadline = time.monotonic() + timeout_s
        said: object = None
        while time.monotonic() < deadline:
            for node_id in self.nodes:
                with contextlib.suppress(*NOT_YET):
                    said = self.call(
                        node_id, "create_topics", 5, topics=[wanted], timeout=5000, validate_only=False
                    )
            if all(len(self.leaders(topic, node_id)) == partitions for node_id in self.nodes):
                return
            time.sleep(0.2)
        raise ClusterFailed(
            f"topic {topic} is not led everywhere after {timeout_s:.0f} s; last answer: {said}"
        )
