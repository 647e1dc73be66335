"""Several brokers of one kind, alive together, warmed up: a `Session` whose broker is a cluster.

Owns: which node leads a partition, and the loss of a leader. Both kinds keep all nodes on this machine's one
disk, pinned to nothing.
Does not decide which blocks run.
"""

from __future__ import annotations

import subprocess
import time
from typing import Any

from bench.exit_status import log_progress
from bench.sessions.jobs import Block, RoundFailed, Running
from bench.sessions.session import Session
from bench.sessions.setup import GROUPS
from bench.settings import NODES

WARM_PARTITIONS = 3
SPREAD_WAIT_S = 20.0
SETTLED_S = 6.0
"""Leaders that did not change for so long stay: both kinds move them to a preferred node at first."""
SETTLED_WAIT_S = 40.0


class NodesSession(Session):
    """Three nodes of one side. `groups`: how many may lead partitions of a topic, in Lockstep its data
    groups."""

    replication = NODES
    flushed_copies = NODES // 2 + 1

    def _make_target(self) -> Running:
        self.groups = int(self.setup.settings.get(GROUPS, NODES))
        self.cluster = self.setup.three(self.directory)
        return self.cluster

    def open(self) -> None:
        """Start the nodes, let leaderships come to rest, warm up. RoundFailed, TargetFailed."""
        self.start_s = self.target.start()
        self._await_stable(self.topic(self.policies[0], WARM_PARTITIONS))
        self._warm_up()

    def _await_stable(self, topic: str) -> None:
        deadline = time.monotonic() + SETTLED_WAIT_S
        leaders, since = self.leaders(topic), time.monotonic()
        while time.monotonic() < min(deadline, since + SETTLED_S):
            time.sleep(0.2)
            now = self.leaders(topic)
            if now != leaders:
                leaders, since = now, time.monotonic()

    # -- who leads --------------------------------------------------------------------------------------

    def leaders(self, topic: str) -> list[int]:
        """The node that leads each partition; waits a little where one has none just now."""
        deadline = time.monotonic() + SPREAD_WAIT_S
        while True:
            found = self._of_target().leaders(topic)
            if found and -1 not in found:
                return found
            if time.monotonic() > deadline:
                raise RoundFailed(f"{topic}: leaders {found}")
            time.sleep(0.05)

    def topic(self, policy: str, partitions: int = 1) -> str:
        """Like `Session.topic`; several partitions have different leaders, where there are groups enough."""
        name = super().topic(policy, partitions)
        deadline = time.monotonic() + SPREAD_WAIT_S
        while len(set(self.leaders(name))) < min(partitions, self.groups, NODES):
            if time.monotonic() > deadline:
                log_progress(f"  {name}: leaders {self.leaders(name)} after {SPREAD_WAIT_S:.0f} s")
                break
            time.sleep(0.2)
        return name

    def start_job(self, name: str, **words: Any) -> subprocess.Popen[str]:
        """Like `Session.start_job`, sent to the leaders of the job's topic."""
        if "topic" in words and "ports" not in words:
            ports = [self.cluster.nodes[node].port for node in self.leaders(words["topic"])]
            words = {"port": ports[0], **words}
            if words.get("spread") == "led":
                words |= {"ports": ports, "spread": "turns"}
        return super().start_job(name, **words)

    def _warm_slice(self, topic: str, producers: int) -> int:
        """Once more where it fails: a leader may have moved, which raw producers do not follow."""
        try:
            return self._led_slice(topic, producers)
        except RoundFailed as error:
            log_progress(f"  warm-up, once more: {error}")
            return self._led_slice(topic, producers)

    def _led_slice(self, topic: str, producers: int) -> int:
        words: dict[str, Any] = {"partitions": WARM_PARTITIONS, "spread": "led", "warmup_s": 0.0}
        done = self.closed_loop(topic, producers, seconds=1.0, **words)
        filled = self.filled(topic, 8 << 20)
        return int(done["total_requests"] + filled["total_requests"])

    def _warm_topics(self) -> list[str]:
        return [self.topic(policy, WARM_PARTITIONS) for policy in self.policies]

    # -- the loss of a leader ---------------------------------------------------------------------------

    def lose_leader(self, topic: str, timeout_s: float = 90.0) -> Block:
        """kill -9 the leader of partition 0 under load; seconds until another acknowledges. It comes back.

        RoundFailed, too, where leadership moved by itself before the kill: nothing was lost then.
        """
        self._await_stable(topic)
        leader = self.leaders(topic)[0]
        others = [number for number in self.cluster.nodes if number != leader]
        ports = [self.cluster.nodes[number].port for number in (leader, *others)]
        try:
            with self.running_job("leader_loss", topic=topic, ports=ports, timeout_s=timeout_s) as child:
                time.sleep(1.5)  # the generator starts, and writes for a while
                killed_ns = time.monotonic_ns()
                self.cluster.kill9(leader)
            result = self.finish_job(child)
        finally:
            self.cluster.restart(leader)
            self.cluster.await_members(self.cluster.nodes)
        if result["lost_ns"] < killed_ns:
            raise RoundFailed(f"{topic}: node {leader} led no more before it was killed")
        return {
            "first_ack_s": (result["acked_ns"] - killed_ns) / 1e9,
            "attempts": result["attempts"],
            "total_records": result["acked"],
        }

    def await_replicas(self, topic: str, timeout_s: float = 60.0) -> None:
        """Until every partition has a leader and all its replicas again; a warning where it takes longer."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._of_target().is_replicated(topic):
                return
            time.sleep(0.1)
        log_progress(f"  {topic}: not all replicas are back after {timeout_s:.0f} s")
