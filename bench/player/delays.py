"""Blocks of both sides: one run of a workload, from the writer to all targets.

Owns: which processes a block has, the order in which they begin, and that everything arrived. Figures are the
writer's (`append_*`, `per_s`, `most_late_ms`), and the targets' (`apply_*`: since just before the append was
sent; `player_*`: since just before the player processed it), in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from bench.exit_status import log_progress
from bench.machine import process
from bench.player.points import OPEN, PLAIN, RAW, REMOTE, STORED, TRANSACTIONS, Axes, Point, block_name
from bench.player.workload import target_names
from bench.player.writer import OUTSTANDING
from bench.sessions.children import Child, Connected, LineChild, Words
from bench.sessions.jobs import Block, Running
from bench.settings import FLUSH

ARRIVE_TIMEOUT_S = 60.0
BACKLOG_TIMEOUT_S = 600.0
"""Two-level Kafka plays its log long after it was written."""

ISOLATION = {PLAIN: "read_uncommitted", TRANSACTIONS: "read_committed"}


def load(axes: Axes, loop: str, point: Point, **more: Any) -> Words:
    """A writer's load for one point."""
    is_open = loop == OPEN
    return {
        **point._asdict(),
        "rate": axes.rate if is_open else 0,
        "seconds": axes.open_s if is_open else axes.closed_s,
        "warmup_s": axes.warmup_s,
        "count": axes.transactions,
        **more,
    }


class PlayerSession(Protocol):
    """A `Session` whose brokers take players."""

    directory: Path
    blocks: list[Block]

    @property
    def target(self) -> Running: ...
    def topic(self, policy: str, partitions: int = 1) -> str: ...
    def leader_directory(self, topic: str) -> Path:
        """The directory of the broker that leads the topic and runs players (`bench.player.child_host`)."""

    def observe(
        self, name: str, policy: str, work: Callable[[], Block], *, max_outstanding: int
    ) -> Block: ...


def player_of(
    session: PlayerSession, system: str, topic: str, addresses: list[str], route: str, **more: Any
) -> Child | Connected:
    """A player that begins. Args: system: one of LOG_PLAYERS; more: of its job."""
    words: Words = {
        "bootstrap": session.target.bootstrap,
        "topic": topic,
        "transport": "raw" if system == RAW else "grpc",
        "addresses": dict(zip(target_names(len(addresses)), addresses, strict=True)),
        "route": route,
        **more,
    }
    if system == REMOTE:
        return Child("bench.player.player_runs", words)
    return Connected("player", session.leader_directory(topic), words)


class Blocks:
    """Runs of one session."""

    def __init__(self, session: PlayerSession, axes: Axes) -> None:
        self.session = session
        self.axes = axes
        self._shards: list[str] = []
        self._runs = 0

    # -- Kafka ------------------------------------------------------------------------------------------

    def kafka(self, system: str, loop: str, point: Point) -> None:
        """Kafka with or without transactions. RoundFailed."""
        shards = self._topics(point.targets)
        job = load(self.axes, loop, point, mode=_mode_of(system), topics=shards)

        def work() -> Block:
            with ExitStack() as stack:
                consumers = self._consumers(stack, point, shards, ISOLATION[system])
                return self._write(job, consumers, ARRIVE_TIMEOUT_S)

        self.observe(block_name(system, loop, point), loop, work)

    def two_level(self, targets: int) -> None:
        """So many transactions to one log; a player copies each in one of its own. RoundFailed."""
        point = Point(targets, self.axes.targets_keys)
        shards, log = self._topics(targets), self.session.topic(FLUSH)
        count = self.axes.two_level_transactions
        until = {"count": count, "seconds": BACKLOG_TIMEOUT_S, "warmup_s": 0.0}
        job = load(self.axes, "closed", point, mode="log", topics=[log], **until)

        def work() -> Block:
            with ExitStack() as stack:
                consumers = self._consumers(stack, point, shards, "read_committed")
                words = {"bootstrap": self.session.target.bootstrap, "log": log, "topics": shards}
                player = stack.enter_context(Child("bench.player.kafka_player", words))
                player.next_response()
                return self._write(job, consumers, BACKLOG_TIMEOUT_S)

        self.observe(block_name("two_level", "closed", point), "closed", work)

    def _topics(self, count: int) -> list[str]:
        while len(self._shards) < count:
            self._shards.append(self.session.topic(FLUSH))
        return self._shards[:count]

    def _consumers(self, stack: ExitStack, point: Point, topics: list[str], isolation: str) -> Child:
        where = {"bootstrap": self.session.target.bootstrap, "topics": topics, "isolation": isolation}
        child = stack.enter_context(Child("bench.player.consumers", {**point._asdict(), **where}))
        child.next_response()
        return child

    # -- LogPlayer --------------------------------------------------------------------------------------

    def log_player(self, system: str, loop: str, point: Point, *, name: str = "", **load_words: Any) -> Block:
        """LogPlayer with a transport, or to durable targets. RoundFailed."""
        topic = self.session.topic(FLUSH)
        job = load(self.axes, loop, point, mode="log", topics=[topic], **load_words)
        transport = "raw" if system == RAW else "grpc"

        def work() -> Block:
            words = {**point._asdict(), "transport": transport, "directory": "", "name": topic}
            if system == STORED:
                words["directory"] = str(self.session.directory)
            with Child("bench.player.targets", words) as targets:
                addresses = targets.next_response()["addresses"]
                with player_of(self.session, system, topic, addresses, "split") as player:
                    player.next_response()
                    before_s = self._player_cpu(player)
                    figures = self._write(job, targets, ARRIVE_TIMEOUT_S)
                    used_s = self._player_cpu(player) - before_s
                    return {**figures, "player_cpu_us": used_s / figures["writes"] * 1e6}

        return self.observe(name or block_name(system, loop, point), loop, work)

    def _player_cpu(self, player: LineChild) -> float:
        """CPU seconds of the player so far: a process of its own, or the brokers."""
        pids = [player.pid] if isinstance(player, Child) else self.session.target.pids
        return sum(map(process.cpu_seconds, pids))

    # -- both -------------------------------------------------------------------------------------------

    def _write(self, job: Words, targets: Child, timeout_s: float) -> Block:
        written, window = self.write(job)
        arrived = targets.call({**window, "timeout_s": timeout_s}, timeout_s + ARRIVE_TIMEOUT_S)
        return {**written, **arrived}

    def write(self, job: Words) -> tuple[Block, Words]:
        """The writer's figures, and the request to the targets for theirs. RoundFailed."""
        self._runs += 1
        name = f"bench-writer-{self._runs}"
        with Child(
            "bench.player.writer", {**job, "bootstrap": self.session.target.bootstrap, "name": name}
        ) as writer:
            writer.next_response()
            written = writer.call({}, job["seconds"] + job["warmup_s"] + ARRIVE_TIMEOUT_S)
        return written, {key: written.pop(key) for key in ("transactions", "opens_ns", "closes_ns")}

    def observe(self, name: str, loop: str, work: Callable[[], Block]) -> Block:
        """Measure a block, keep it, and print it."""
        outstanding = OUTSTANDING if loop == OPEN else 1
        block = self.session.observe(name, FLUSH, work, max_outstanding=outstanding)
        figures = block["figures"]
        words = f"  {name:26} {figures['per_s']:6.1f}/s, apply {figures['apply_mean_ms']:8.2f} ms, "
        words += f"p99 {figures['apply_p99_ms']:8.2f} ms"
        if "player_mean_ms" in figures:
            words += f"; player {figures['player_mean_ms']:.3f} ms, p99 {figures['player_p99_ms']:.3f} ms"
        log_progress(words)
        return block


def _mode_of(system: str) -> str:
    return "transactions" if system == TRANSACTIONS else "shards"
