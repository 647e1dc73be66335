"""The start of a side's brokers: one alone, or three that are a cluster.

Owns: what differs between sides, and the settings that all runs share: Kafka as shipped but for what is said
(the tests take one partition of offsets to be quick), Lockstep with the flushes of its policy, and in both
clusters two of three nodes that must have a write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.sessions.jobs import Running
from bench.settings import FLUSH, LOG_FLUSH, NODES, SHIPPED_HEAP
from compat_tests.clusters import Cluster, KafkaCluster, LockstepCluster
from compat_tests.targets import ROOT, KafkaTarget, LockstepTarget
from lockstep.native import VARIABLE

NODE_HEAP = "512M"
"""Of each Kafka node, half of what Kafka ships: memory is compared too, and more than it needs would flatter
us."""
GROUPS = "lockstep.data.groups"
"""Three, where no setting has another number."""


def of_tree(tree: Path | None) -> dict[str, str]:
    """The environment of a Lockstep of other sources, as Python: what is compiled is of one tree's alone."""
    return {"PYTHONPATH": str(tree.resolve()), VARIABLE: "0"} if tree else {"PYTHONPATH": str(ROOT)}


@dataclass(frozen=True)
class Setup:
    """One side's brokers. `policies` are those whose topics a process can serve."""

    kind: str
    policies: tuple[str, ...] = (FLUSH,)
    settings: Mapping[str, str] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    """The configuration of each topic, besides those of the policy."""
    heap: str = ""
    """Of Kafka; empty: as it is shipped, or NODE_HEAP of each of three."""
    tree: Path | None = None
    """Lockstep of this source tree instead of the one the benchmark is in."""
    command: Sequence[str] | None = None
    """Lockstep's, where it is another one."""
    make: Callable[[Path], Running] | None = None
    """Starts another kind of broker alone, in this directory."""

    def one(self, directory: Path) -> Running:
        """A broker alone, not started. ToolchainMissing."""
        if self.make is not None:
            return self.make(directory)
        if self.kind == "kafka":
            settings = {"offsets.topic.num.partitions": "50", **self.settings}
            return KafkaTarget(settings, heap=self.heap or SHIPPED_HEAP, directory=directory)
        return LockstepTarget(self._lockstep(), directory=directory, **self._launch())

    def three(self, directory: Path) -> Cluster:
        """A cluster, not started. ToolchainMissing."""
        if self.kind == "kafka":
            return KafkaCluster(NODES, self.settings, heap=self.heap or NODE_HEAP, directory=directory)
        settings = {"min.insync.replicas": "2", **self._lockstep()}
        return LockstepCluster(NODES, settings, directory=directory, **self._launch())

    def _lockstep(self) -> dict[str, str]:
        (policy,) = self.policies
        return {"log.flush": LOG_FLUSH[policy], **self.settings}

    def _launch(self) -> dict[str, Any]:
        return {"environment": of_tree(self.tree), "command": self.command}

    def topic_config(self, policy: str) -> dict[str, str]:
        """The configuration of a topic for this policy."""
        flushed = {"flush.messages": "1"} if self.kind == "kafka" and policy == FLUSH else {}
        return {**flushed, **self.topic}
