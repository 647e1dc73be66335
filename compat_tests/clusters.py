"""Several brokers of one kind on this machine, as one context object with a single broker's face.

    with KafkaCluster(3) as cluster:
        produce_to(cluster.bootstrap)
        cluster.kill9(2)
        cluster.restart(2)        # same ports, same data

Owns: which nodes there are, their ports, and starting them together (none of them serves before a quorum is
there). Invariant: after `start()` every live node lists every live node. Nodes are `Target`s: their life,
logs and directories are the target's. Knows no topics.
"""

from __future__ import annotations

import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Unpack

from compat_tests.lifecycle import Lifecycle
from compat_tests.probe import HOST, free_port
from compat_tests.raw import RawConnection, raw_connection
from compat_tests.targets import (
    KafkaTarget,
    LockstepTarget,
    Target,
    TargetFailed,
    TargetOptions,
    kafka_uuid,
)

READY_TIMEOUT_S = 120.0
NEW_LEADER_S = 2.2
"""A new leader asks producers to come again for a moment, instead of telling them of gaps (decision 19)."""
PROBE_INTERVAL_S = 0.05


class KafkaNode(KafkaTarget):
    """One of several KRaft processes, broker and controller in one; `voters` are the controllers' ports."""

    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, int],
        cluster_id: str,
        settings: Mapping[str, str],
        *,
        heap: str,
        directory: Path,
        port: int,
    ) -> None:
        self.node_id = node_id
        copies, least = str(min(3, len(voters))), str(min(2, len(voters)))
        own = {
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(f"{each}@{HOST}:{at}" for each, at in voters.items()),
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{voters[node_id]}",
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "50",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": least,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": least,
            "min.insync.replicas": least,
        }
        super().__init__({**own, **settings}, heap=heap, directory=directory, port=port)
        self._cluster_id = cluster_id


class LockstepNode(LockstepTarget):
    """One of several `lockstep serve` processes; `peers` are the replication listeners' ports."""

    def __init__(
        self,
        node_id: int,
        peers: Mapping[int, int],
        settings: Mapping[str, str],
        *,
        command: Sequence[str] | None = None,
        **options: Unpack[TargetOptions],
    ) -> None:
        self.node_id = node_id
        self._peers = ",".join(f"{each}@{HOST}:{at}" for each, at in peers.items())
        super().__init__(settings, command=command, **options)

    def _command(self) -> list[str]:
        return [*super()._command(), "--node-id", str(self.node_id), "--peers", self._peers]


class Cluster(Lifecycle):
    """What both kinds have in common: `nodes` by id, from 1."""

    name = "cluster"

    def __init__(self, directory: Path | None = None) -> None:
        self._owns_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"{self.name}-cluster-"))
        self.nodes: dict[int, Target] = {}

    # -- life -------------------------------------------------------------------------------------------

    def start(self) -> float:
        """Start all nodes together; seconds until each knows all. TargetFailed."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.start(), self.nodes.values()))
        self.await_members(self.nodes)
        return time.monotonic() - began

    def await_members(self, wanted: Mapping[int, object], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Until every live node lists all of these as alive. TargetFailed."""
        deadline = time.monotonic() + timeout_s
        ids = set(wanted)
        while not all(ids <= live_nodes(node.port) for node in self.nodes.values() if node.running):
            if time.monotonic() > deadline:
                raise TargetFailed(f"{self.name}: not all of {sorted(ids)} after {timeout_s:.0f} s")
            time.sleep(PROBE_INTERVAL_S)

    def kill9(self, node_id: int | None = None) -> None:
        """SIGKILL to one node, or to all at once."""
        for each in [self.nodes[node_id]] if node_id is not None else list(self.nodes.values()):
            each.kill9()

    def restart(self, node_id: int) -> float:
        """Start one node again on its data; seconds until it answers."""
        return self.nodes[node_id].restart()

    def close(self) -> None:
        """End all nodes at once and remove what was made here. May be called twice."""
        for node in self.nodes.values():
            node.close()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- facts ------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """All nodes' addresses, for a client's bootstrap servers."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def port(self) -> int:
        """A live node's port."""
        return next(node.port for node in self.nodes.values() if node.running)

    @property
    def pids(self) -> list[int]:
        """The live nodes' process ids."""
        return [node.pid for node in self.nodes.values() if node.running]

    def log_tail(self) -> str:
        """The end of what each node printed."""
        return "\n".join(f"node {number}:\n{node.log_tail()}" for number, node in self.nodes.items())


class KafkaCluster(Cluster):
    """Apache Kafka 4.4.0 nodes, min.insync.replicas 2. `heap` sets -Xms and -Xmx of each."""

    name = "kafka"

    def __init__(
        self,
        count: int,
        settings: Mapping[str, str] | None = None,
        *,
        heap: str = "1G",
        directory: Path | None = None,
    ) -> None:
        super().__init__(directory)
        ports = free_ports(2 * count)
        voters = {number: ports[count + number - 1] for number in range(1, count + 1)}
        cluster_id = kafka_uuid()
        for number in voters:
            self.nodes[number] = KafkaNode(
                number,
                voters,
                cluster_id,
                settings or {},
                heap=heap,
                directory=self.directory / f"node-{number}",
                port=ports[number - 1],
            )


class LockstepCluster(Cluster):
    """Lockstep nodes that replicate to each other. `command` replaces the words before `serve`."""

    name = "lockstep"

    def __init__(
        self,
        count: int,
        settings: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        super().__init__(directory)
        ports = free_ports(2 * count)
        peers = {number: ports[count + number - 1] for number in range(1, count + 1)}
        for number in peers:
            self.nodes[number] = LockstepNode(
                number,
                peers,
                settings or {},
                directory=self.directory / f"node-{number}",
                port=ports[number - 1],
                environment=environment or {},
                command=command,
            )


class LockstepThree(Target):
    """Three Lockstep nodes with one broker's face, for cases that are written for one.

    Invariant: after `start()` each log group is led by the node that it belongs to, so no leader moves by
    itself in the middle of a case.
    """

    name = "lockstep-3"
    node_ids = (1, 2, 3)
    together: Mapping[str, str] = {"lockstep.group": "1"}

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings)
        self.cluster = LockstepCluster(3, settings, directory=self.directory)

    def start(self) -> float:
        began = time.monotonic()
        self.cluster.start()
        self._await_leaders()
        return time.monotonic() - began

    def kill9(self) -> None:
        self.cluster.kill9()

    def stop(self, timeout_s: float = 60.0) -> int:
        """All at once; the highest exit code."""
        with ThreadPoolExecutor(len(self.cluster.nodes)) as pool:
            codes: list[int] = list(pool.map(lambda node: node.stop(timeout_s), self.cluster.nodes.values()))
        return max(codes)

    def keep_log(self, directory: Path | None = None) -> Path:
        copies = [node.keep_log(directory) for node in self.cluster.nodes.values()]
        return copies[0].parent

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def pid(self) -> int:
        return self.cluster.nodes[1].pid

    @property
    def pids(self) -> list[int]:
        return self.cluster.pids

    @property
    def running(self) -> bool:
        """Do all run? One that died of a case is a failure as good as any."""
        return all(node.running for node in self.cluster.nodes.values())

    @property
    def exit_code(self) -> int | None:
        """None while any runs; else the lowest, which is a signal if there was one."""
        codes = [node.exit_code for node in self.cluster.nodes.values()]
        known = [each for each in codes if each is not None]
        return min(known) if len(known) == len(codes) else None

    def log_tail(self) -> str:
        return self.cluster.log_tail()

    def _await_leaders(self) -> None:
        """Until three partitions of a topic, one per log group, are led by three nodes. TargetFailed."""
        topic, nodes = "lockstep-3-is-ready", len(self.cluster.nodes)
        deadline = time.monotonic() + READY_TIMEOUT_S
        with raw_connection(self.cluster.nodes[1].bootstrap) as raw:
            wanted = {"name": topic, "num_partitions": nodes, "replication_factor": -1}
            while raw.call("create_topics", 7, topics=[wanted], timeout=10_000)["topics"][0]["error_code"]:
                _pause(deadline, "no topic can be made")
            while not _spread(raw, topic):
                _pause(deadline, "leaders are not where they belong")
            raw.call("delete_topics", 5, topic_names=[topic], timeout=10_000)
        time.sleep(NEW_LEADER_S)


def _pause(deadline: float, problem: str) -> None:
    if time.monotonic() > deadline:
        raise TargetFailed(f"three nodes: {problem}")
    time.sleep(PROBE_INTERVAL_S)


def _spread(raw: RawConnection, topic: str) -> bool:
    """Whether each partition is led by the first of its replicas, and no two by one node."""
    (seen,) = raw.call("metadata", 12, topics=[{"name": topic}])["topics"]
    leaders = [each["leader_id"] for each in seen["partitions"]]
    return leaders == [each["replica_nodes"][0] for each in seen["partitions"]] and len({*leaders}) == len(
        leaders
    )


def free_ports(count: int) -> list[int]:
    """Different free loopback ports."""
    found: list[int] = []
    while len(found) < count:
        port = free_port()
        if port not in found:
            found.append(port)
    return found


def live_nodes(port: int, timeout_s: float = 1.0) -> set[int]:
    """The node ids that Metadata v1 lists on this port; none where nobody answers."""
    body = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                return _broker_ids(stream.read(size))
    except (OSError, struct.error):
        return set()


def _broker_ids(answer: bytes) -> set[int]:
    """Brokers of a Metadata v1 response: id, host, port, rack each."""
    _, count = struct.unpack_from(">ii", answer)
    place, found = 8, set()
    for _ in range(count):
        number, host_bytes = struct.unpack_from(">ih", answer, place)
        place += 6 + host_bytes + 4
        (rack_bytes,) = struct.unpack_from(">h", answer, place)
        place += 2 + max(0, rack_bytes)
        found.add(number)
    return found
