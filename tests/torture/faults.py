"""What is done to a cluster while clients work, each with its undo, drawn from a seed before the run begins.

Owns: the kinds below and `plan()`, which is pure: the same seed, kinds and length give the same faults. A
fault is undone before the next one begins, so at most one is there at a time. Targets are node ids, or
"leader", which is found when the fault begins (who leads the torture topic's partition 0).

    kill             SIGKILL, and a new start         kill-all    of all nodes
    pause            SIGSTOP, SIGCONT
    partition        a node from the others, both ways; now and then from the clients, too
    link             two nodes from each other: with three, each still sees a majority, and no two the same
    ring             with five and more: each sees a majority of neighbours, and no two the same
    deaf, mute       one way only: the others' packets to it, or its packets to the others, vanish
    disk-full        its file system has no free block
    disk-slow        ten writes per second
    membership       a node is drained and added again (`lockstep cluster remove` and `add`)
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.torture.cluster import CLIENT, Cluster
from tests.torture.network import NotPossible

LEADER = 0
"""As a target: who leads when the fault begins."""
EVERYWHERE = ("kill", "kill-all", "pause", "partition", "link", "deaf", "mute", "disk-full", "disk-slow")
"""What a run of three nodes draws from when not told otherwise."""
SINGLE_NODE = ("kill", "pause", "disk-full", "disk-slow")
SLOW_WRITES_PER_S = 10


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault to come; `at_s` from the run's begin. `spin` decides what else there is to decide."""

    at_s: float
    kind: str
    target: int
    lasts_s: float
    spin: int

    def __str__(self) -> str:
        who = (
            "all" if self.kind in ("kill-all", "ring") else f"node {self.target}" if self.target else "leader"
        )
        return f"{self.at_s:5.1f} s {self.kind} {who} for {self.lasts_s:.1f} s"


@dataclass(slots=True)
class Done:
    """A fault that took place; times are of the monotonic clock."""

    kind: str
    nodes: list[int]
    leader: bool
    """Whether it hit who led the torture topic's partition 0."""
    led: list[str]
    """The torture topic's partitions led by the nodes it hit, as "topic-partition"."""
    began_ns: int
    ended_ns: int = 0
    next_ns: int = 0


def plan(seed: int, kinds: Sequence[str], nodes: int, seconds: float, every_s: float = 10.0) -> list[Planned]:
    """A fault every `every_s`; the last ends before the run does. ValueError for a kind there is not."""
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise ValueError(f"unknown faults {sorted(unknown)}; there are {', '.join(KINDS)}")
    rng = random.Random(f"faults-{seed}")
    bag: list[str] = []
    planned = []
    for number in range(int(seconds / every_s)):
        if not bag:  # every kind comes once before any comes twice
            bag = rng.sample(list(kinds), len(kinds))
        target = LEADER if rng.random() < 0.5 else rng.randrange(1, nodes + 1)
        at_s = number * every_s + rng.uniform(0.1, 0.3) * every_s
        kind = bag.pop()
        shortest = 0.4 if kind.startswith("disk") else 0.05  # a full disk is felt when the last file is full
        lasts_s = rng.uniform(shortest, 0.65) * every_s
        planned.append(Planned(round(at_s, 2), kind, target, round(lasts_s, 2), rng.randrange(1 << 16)))
    return planned


class Injector:
    """Carries out what was planned; `done` says what took place."""

    def __init__(self, cluster: Cluster, topic: str, say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.topic = topic
        self.done: list[Done] = []
        self._say = say

    def inject(self, planned: Planned, wait: Callable[[float], object] = time.sleep) -> None:
        """Begins it, waits, and undoes it, also when waiting was interrupted."""
        leaders = self.cluster.leaders(self.topic)
        node_id = planned.target or leaders.get(0, 1)
        begin, undo, nodes = KINDS[planned.kind](self.cluster, node_id, planned.spin)
        led = [f"{self.topic}-{each}" for each, leader in sorted(leaders.items()) if leader in nodes]
        done = Done(planned.kind, nodes, leaders.get(0) in nodes, led, time.monotonic_ns())
        if self.done:
            self.done[-1].next_ns = done.began_ns
        self.done.append(done)
        self._say(f"{planned.kind} on {nodes}{' (leads)' if done.leader else ''} for {planned.lasts_s} s")
        try:
            begin()
            wait(planned.lasts_s)
        finally:
            undo()
            done.ended_ns = time.monotonic_ns()

    def heal(self) -> None:
        """Whatever was done: every node runs, speaks with everyone, and has a disk."""
        self.cluster.network.heal_all()
        for node in self.cluster.nodes.values():
            if node.disk is not None:
                node.disk.free()
            if node.throttle is not None:
                node.throttle.free()
            if node.paused:
                node.resume()
            if not node.running:
                node.start()


Action = Callable[[], None]
Made = tuple[Action, Action, list[int]]
"""Begin, undo, and the nodes that are hit."""


def _kill(cluster: Cluster, node_id: int, _spin: int) -> Made:
    node = cluster.nodes[node_id]
    return node.kill, node.start, [node_id]


def _kill_all(cluster: Cluster, _node_id: int, _spin: int) -> Made:
    nodes = list(cluster.nodes.values())

    def begin() -> None:
        for node in nodes:
            node.kill()

    def undo() -> None:
        for node in nodes:
            node.start()

    return begin, undo, list(cluster.nodes)


def _pause(cluster: Cluster, node_id: int, _spin: int) -> Made:
    node = cluster.nodes[node_id]
    return node.pause, node.resume, [node_id]


def _cuts(cluster: Cluster, pairs: Sequence[tuple[str, str]], nodes: list[int]) -> Made:
    def begin() -> None:
        for source, destination in pairs:
            cluster.network.cut(source, destination)

    def undo() -> None:
        for source, destination in pairs:
            cluster.network.heal(source, destination)

    return begin, undo, nodes


def _others(cluster: Cluster, node_id: int) -> list[str]:
    return [node.host for node in cluster.nodes.values() if node.node_id != node_id]


def _both_ways(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*pairs, *((second, first) for first, second in pairs)]


def _partition(cluster: Cluster, node_id: int, spin: int) -> Made:
    others = [*_others(cluster, node_id), *([CLIENT] if spin % 3 == 0 else [])]
    return _cuts(cluster, _both_ways([(f"n{node_id}", other) for other in others]), [node_id])


def _link(cluster: Cluster, node_id: int, spin: int) -> Made:
    others = _others(cluster, node_id)
    if not others:
        raise NotPossible("a single node has no link to cut")
    return _cuts(cluster, _both_ways([(f"n{node_id}", others[spin % len(others)])]), [node_id])


def _ring(cluster: Cluster, _node_id: int, spin: int) -> Made:
    if cluster.size < 5:
        raise NotPossible("a ring of majorities needs five nodes; with three it is `link`")
    order = list(cluster.nodes)
    random.Random(spin).shuffle(order)
    reach = cluster.size // 4 + 1 if cluster.size % 2 == 0 else (cluster.size // 2 + 1) // 2
    cut = []
    for first, second in itertools.combinations(range(cluster.size), 2):
        distance = min(second - first, cluster.size - second + first)
        if distance > reach:
            cut.append((f"n{order[first]}", f"n{order[second]}"))
    return _cuts(cluster, _both_ways(cut), order)


def _deaf(cluster: Cluster, node_id: int, _spin: int) -> Made:
    return _cuts(cluster, [(other, f"n{node_id}") for other in _others(cluster, node_id)], [node_id])


def _mute(cluster: Cluster, node_id: int, _spin: int) -> Made:
    return _cuts(cluster, [(f"n{node_id}", other) for other in _others(cluster, node_id)], [node_id])


def _disk_full(cluster: Cluster, node_id: int, _spin: int) -> Made:
    disk = cluster.nodes[node_id].disk
    if disk is None:
        raise NotPossible("a full disk needs a cluster with disk_bytes")
    return disk.fill, disk.free, [node_id]


def _disk_slow(cluster: Cluster, node_id: int, _spin: int) -> Made:
    node = cluster.nodes[node_id]
    throttle = node.throttle
    if throttle is None:
        raise NotPossible("a slow disk needs a throttled cluster")
    return (lambda: throttle.limit(node.data_dir, SLOW_WRITES_PER_S)), throttle.free, [node_id]


def _membership(cluster: Cluster, node_id: int, _spin: int) -> Made:
    """The place for `lockstep cluster remove N`, an emptied directory, and `lockstep cluster add N`."""
    raise NotPossible("membership: waits for `lockstep cluster add` and `remove`")


KINDS: dict[str, Callable[[Cluster, int, int], Made]] = {
    "kill": _kill,
    "kill-all": _kill_all,
    "pause": _pause,
    "partition": _partition,
    "link": _link,
    "ring": _ring,
    "deaf": _deaf,
    "mute": _mute,
    "disk-full": _disk_full,
    "disk-slow": _disk_slow,
    "membership": _membership,
}
