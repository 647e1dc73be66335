"""The brokers a workload can name, and a session of each.

Owns: the names, what each promises for an acknowledged write, and which share a process (Kafka flushes by
topic, so one broker serves "kafka" and "kafka-flush"). Does not know what is measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.baselines import memory, tuned
from bench.figures.ratios import SUBJECT
from bench.machine.memory import keep_again
from bench.sessions.cluster import NodesSession
from bench.sessions.jobs import Running
from bench.sessions.session import WARMUP_SLICE_S, Session
from bench.sessions.setup import Setup
from bench.settings import FLUSH, NODES, OS, Sizes
from compat_tests.kafka_jars import ToolchainMissing, classpath, java_command

MEMORY: Final = "memory"
"""The policy of a broker that writes nothing to a disk."""


def _no_check() -> object:
    return None


def _kafka_check() -> object:
    return java_command(), classpath()


@dataclass(frozen=True)
class Broker:
    """A process (or three) that serves one or several targets: target name by flush policy."""

    name: str
    kind: str
    targets: dict[str, str]
    settings: dict[str, str] = field(default_factory=dict)
    heap: str = ""
    nodes: tuple[int, ...] = (1, NODES)
    check: Callable[[], object] = _no_check
    """Raises ToolchainMissing where it cannot be started here."""
    make: Callable[[Path], Running] | None = None

    @property
    def setup(self) -> Setup:
        """The way to start it."""
        return Setup(self.kind, tuple(self.targets), self.settings, heap=self.heap, make=self.make)

    @property
    def keeps(self) -> bool:
        """True if it writes to a disk; what does not would fill the machine's memory with every cell's."""
        return MEMORY not in self.targets

    def missing(self) -> str:
        """Why it cannot be started here, in a line; empty where it can."""
        try:
            self.check()
        except ToolchainMissing as error:
            return str(error).splitlines()[0]
        return ""


BROKERS: Final = (
    Broker("lockstep", "lockstep", {FLUSH: "lockstep"}),
    Broker("lockstep-os", "lockstep", {OS: "lockstep-os"}),
    Broker("kafka", "kafka", {OS: "kafka", FLUSH: "kafka-flush"}, check=_kafka_check),
    Broker(
        "kafka-tuned",
        "kafka",
        {OS: "kafka-tuned", FLUSH: "kafka-tuned-flush"},
        tuned.properties(),
        tuned.TUNED_HEAP,
        check=_kafka_check,
    ),
    Broker("tansu", "tansu", {MEMORY: "tansu"}, nodes=(1,), check=memory.tansu_program, make=memory.tansu),
    Broker("kfake", "kfake", {MEMORY: "kfake"}, nodes=(1,), check=memory.kfake_program, make=memory.kfake),
)
TARGETS: Final = {name: broker for broker in BROKERS for name in broker.targets.values()}
WORDS: Final = {
    "lockstep": "every acknowledged write is flushed",
    "lockstep-os": "the system flushes when it likes (log.flush=os)",
    "kafka": "as shipped: the system flushes when it likes",
    "kafka-flush": "flush.messages=1: every acknowledged write is flushed",
    "kafka-tuned": "`bench/baselines/tuned.py`; the system flushes when it likes",
    "kafka-tuned-flush": "the same with flush.messages=1",
    "tansu": "Rust, memory://: nothing is kept",
    "kfake": "franz-go's fake cluster: nothing is kept",
}


class OneBroker(Session):
    """A session of any broker, alone."""

    def __init__(self, broker: Broker, sizes: Sizes, parent: Path) -> None:
        self.broker = broker
        super().__init__(SUBJECT, broker.setup, sizes, parent)

    def _warm_slice(self, topic: str, producers: int) -> int:
        """Like `Session`; nothing is read of a broker in memory: tansu sends more than a Fetch requests."""
        if self.broker.keeps:
            return super()._warm_slice(topic, producers)
        done = self.closed_loop(topic, producers, seconds=WARMUP_SLICE_S / 2, warmup_s=0.0)
        return int(done["total_requests"])

    def start_anew(self) -> None:
        """Kill it and start another, with nothing in it. TargetFailed."""
        self.target.kill9()
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        keep_again()
        self.target.start()


class ThreeBrokers(NodesSession):
    """The same for three nodes."""

    def __init__(self, broker: Broker, sizes: Sizes, parent: Path) -> None:
        self.broker = broker
        super().__init__(SUBJECT, broker.setup, sizes, parent)

    def start_anew(self) -> None:
        """No cluster keeps everything in memory."""
        raise AssertionError(f"{self.broker.name} keeps what it has on disks")

    def start_job(self, name: str, **words: Any) -> Any:
        """Like `NodesSession`; producers keep to their partitions' leaders."""
        if name == "pipelined_loop" and "ports" not in words:
            words["ports"] = [self.cluster.nodes[node].port for node in self.leaders(words["topic"])]
            words["port"] = words["ports"][0]
        return super().start_job(name, **words)


def session_of(broker: Broker, nodes: int, sizes: Sizes, parent: Path) -> OneBroker | ThreeBrokers:
    """A session that is not started yet. ValueError where this broker has no such cluster."""
    if nodes not in broker.nodes:
        raise ValueError(f"{broker.name} does not run on {nodes} nodes")
    return OneBroker(broker, sizes, parent) if nodes == 1 else ThreeBrokers(broker, sizes, parent)
