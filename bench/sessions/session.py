"""One broker, alive alone, warmed up, with blocks of work measured on it one after another.

Owns: starting a target in a fresh directory, topics of a flush policy, warm-up until the JVM has compiled,
and what is recorded around every block: device counters, CPU of the broker, and CPU that was neither the
broker's nor ours. Invariant: a block whose durability is claimed but not shown by the device's flush
counter is marked unproven, and the records of every block of `measure` are counted in the log afterwards.
Does not decide which blocks run (`bench.sessions.blocks`, and each comparison's `work`) nor compare them
(`bench.figures.ratios`).
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from bench.exit_status import log_progress, not_now
from bench.figures.ratios import SUBJECT
from bench.machine import device, memory, process
from bench.machine.pauses import Pauses
from bench.sessions.jobs import JOB_TIMEOUT_S, Block, Jobs, RoundFailed, Running, WrongCount
from bench.sessions.setup import Setup
from bench.sessions.topics import Topics
from bench.settings import FILL_BATCH_RECORDS, FILL_WINDOW, FLUSH, PRODUCERS, Sizes
from compat_tests.kafka_jars import classpath, java_command

JAVA_OPTIONS = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
WARMUP_SLICE_S = 2.0
CLIENT_START_S = 2.0
"""What sixteen librdkafka producers may take to connect and learn where to send."""
COMPILED_SHARE = 0.08
"""Warm when the JVM's compiler threads used less than this share of one CPU in the last slice."""

T = TypeVar("T")


class Session(Jobs):
    """A running broker of one side."""

    replication = 1
    flushed_copies = 1
    """How many brokers must have flushed a write before it is acknowledged, if any must."""

    def __init__(self, side: str, setup: Setup, sizes: Sizes, parent: Path) -> None:
        super().__init__(setup.kind, sizes)
        self.side = side
        self.setup = setup
        self.policies = setup.policies
        self.blocks: list[Block] = []
        self.warmup: Block = {}
        self.memory: Block = {}
        self.keep_raw: Callable[[str, bytes], Block] | None = None
        """Takes the latencies of a closed loop's block by name, returns the block's fields about them; None:
        not kept."""
        self.more: Block = {}
        """Further fields of the outcome about this session."""
        self.again: list[str] = []
        """What was tried once more, and why (`once_more`)."""
        self.start_s = 0.0
        self.device = device.device_of(parent)  # first, as it may fail
        self._topics = 0
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{setup.kind}-", dir=parent))
        try:
            self.target: Running = self._make_target()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def outcome(self) -> Block:
        """The measurements of this session, in their kept form."""
        return {
            "side": self.side,
            "broker": self.kind,
            "policies": self.policies,
            "start_s": round(self.start_s, 3),
            "warmup": self.warmup,
            "memory": self.memory,
            "again": self.again,
            "blocks": self.blocks,
            **self.more,
        }

    def unproven_blocks(self) -> list[str]:
        """The blocks that are called durable and were not flushed often enough to be, in words."""
        return [
            f"{block['name']} {block['policy']} is not proven durable: "
            f"{block['device']['flushes']} flushes, at least {block['flushes_needed']} needed"
            for block in self.blocks
            if not block["proven"]
        ]

    def _make_target(self) -> Running:
        return self.setup.one(self.directory)

    # -- lifecycle --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the broker and warm it up. RoundFailed, TargetFailed."""
        self.start_s = self.target.start()
        self._warm_up()

    def close(self) -> None:
        """Kill what is left of jobs, and the broker, remove its data, and let the disk settle."""
        with not_now():
            self.kill_jobs()
            self.target.close()
            shutil.rmtree(self.directory, ignore_errors=True)
        memory.keep_again()
        os.sync()

    def log_tail(self) -> str:
        return self.target.log_tail()

    def _sum(self, measure: Callable[[int], float]) -> float:
        """Over the processes of this side."""
        return sum(map(measure, self.target.pids))

    def _warm_up(self) -> None:
        """The measured kinds of work in short slices, until no compiler thread is busy any more."""
        sizes, topics = self.sizes, self._warm_topics()
        slices = requests = 0

        def work() -> None:
            nonlocal slices, requests
            topic = topics[slices % len(topics)]
            requests += self._warm_slice(topic, PRODUCERS if slices % 4 < 2 else 1)
            slices += 1

        least = sizes.warmup_min_s if self.kind == "kafka" else sizes.plain_warmup_s
        self.warmup = {**self._until_quiet(work, least, sizes.warmup_max_s), "requests": requests}
        memory.keep_again()

    def warm(self, work: Callable[[], object]) -> None:
        """A block's own kind of work before it is measured: once, and where a virtual machine runs the broker
        until its compiler is through with it, too."""
        self._until_quiet(work, 0.0, self.sizes.kind_warmup_max_s)

    def _until_quiet(self, work: Callable[[], object], least_s: float, most_s: float) -> Block:
        """`work` again and again until no compiler thread was busy while it was done; what that took."""
        compiles = self.kind == "kafka"
        began = time.monotonic()
        while True:
            before, at = self._sum(process.compiler_seconds), time.monotonic()
            work()
            while compiles and time.monotonic() - at < WARMUP_SLICE_S / 2:
                work()
            share = (self._sum(process.compiler_seconds) - before) / (time.monotonic() - at)
            spent = time.monotonic() - began
            if spent >= least_s and (share < COMPILED_SHARE or spent >= most_s):
                break
        log_progress(f"  warm after {spent:.0f} s; compiler threads {share:.0%} of a CPU")
        return {
            "seconds": round(spent, 1),
            "compiler_share_at_end": round(share, 3),
            "settled": share < COMPILED_SHARE,
        }

    def _warm_topics(self) -> list[str]:
        return [self.topic(policy) for policy in self.policies]

    def _warm_slice(self, topic: str, producers: int) -> int:
        done = self.closed_loop(topic, producers, seconds=WARMUP_SLICE_S / 2, warmup_s=0.0)
        filled = self.filled(topic, 16 << 20)
        self.job("read_backlog", topic=topic)
        return int(done["total_requests"] + filled["total_requests"])

    # -- topics -----------------------------------------------------------------------------------------

    def topic(self, policy: str, partitions: int = 1) -> str:
        """A fresh topic under this policy, ready to be written to."""
        if policy not in self.policies:
            raise ValueError(f"this session does not serve {policy!r}")
        self._topics += 1
        name = f"bench-{policy}-{self._topics:03d}"
        self._of_target().create(name, partitions, self.setup.topic_config(policy))
        return name

    def _of_target(self) -> Topics:
        return Topics(self.target.bootstrap, self.replication)

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """The log end offset of each partition, requested by a client library."""
        return self._of_target().end_offsets(topic, partitions)

    def count_records(self, topic: str, partitions: int, acknowledged: int) -> None:
        """WrongCount where the log has not as many as were acknowledged."""
        stored = sum(self.end_offsets(topic, partitions))
        if stored != acknowledged:
            raise WrongCount(f"{self.kind}: {acknowledged} records acknowledged, {stored} in {topic}")

    # -- work -------------------------------------------------------------------------------------------

    def filled(self, topic: str, total_bytes: int) -> Block:
        """So much in batches as a producer with default settings sends them."""
        shape = {"records": FILL_BATCH_RECORDS, "window": FILL_WINDOW}
        return self.job("fill", topic=topic, total_bytes=total_bytes, **shape)

    def closed_loop(self, topic: str, producers: int, **words: Any) -> Block:
        """Closed-loop producers of one 1 KB record per request, unless `words` has other values."""
        job = {
            "partitions": 1,
            "records": 1,
            "spread": "turns",
            "seconds": self.sizes.latency_s,
            "warmup_s": self.sizes.latency_warmup_s,
            **words,
        }
        return self.job("closed_loop", topic=topic, producers=producers, **job)

    def client_closed_loop(self, topic: str, producers: int) -> Block:
        """The same with librdkafka as the client."""
        return self.job(
            "client_closed_loop",
            topic=topic,
            producers=producers,
            seconds=self.sizes.latency_s,
            warmup_s=self.sizes.latency_warmup_s + CLIENT_START_S,
        )

    @contextlib.contextmanager
    def idle_connections(self, count: int) -> Iterator[float]:
        """Keep connections open that have had one response and are idle; KiB that each costs the broker."""
        if not count:
            yield 0.0
            return
        before = self._sum(process.rss_bytes)
        with self.holding_job("hold_connections", connections=count) as child:
            assert child.stdout is not None
            line = child.stdout.readline()
            if "held" not in line:
                raise RoundFailed(f"{self.kind}: {count} connections are not held: {line.strip()}")
            yield (self._sum(process.rss_bytes) - before) / count / 1024

    def run_java(self, main: str, arguments: list[str]) -> str:
        """The standard output of one of Kafka's own tools, with the heap its start script gives it."""
        command = [java_command(), *JAVA_OPTIONS, "-cp", classpath(), main, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as late:
            raise RoundFailed(f"{self.kind}: {main} did not end within {JOB_TIMEOUT_S:.0f} s") from late
        if done.returncode != 0:
            raise RoundFailed(f"{self.kind}: {main} failed:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
        return done.stdout

    def measure(
        self,
        name: str,
        policy: str,
        work: Callable[[str], Block],
        *,
        partitions: int = 1,
        max_outstanding: int,
    ) -> Block:
        """Run `work(topic)` on a fresh topic and record it with everything around it.

        `work` returns its figures with `total_records` and `writes` (acknowledged requests or batches), of
        which at most `max_outstanding` were ever unacknowledged together. No block, and WrongCount, where
        the log has not as many records as were acknowledged, or RoundFailed where it reports none.
        """
        topic = self.topic(policy, partitions)
        block = self.observe(name, policy, lambda: work(topic), max_outstanding=max_outstanding)
        block["topic"] = topic
        try:
            self.count_records(topic, partitions, int(block["figures"]["total_records"]))
        except BaseException:
            self.blocks.remove(block)  # it was not counted
            raise
        return block

    def once_more(self, name: str, block: Callable[[], T]) -> T:
        """Try what fails once more, and note it: a leader may have moved, which raw producers do not follow.

        A wrong count of records is not tried again. Args: name: what it is called in the note.
        """
        try:
            return block()
        except WrongCount:
            raise
        except RoundFailed as error:
            self.again.append(f"{name}: {error}")
            log_progress(f"  once more: {error}")
            return block()

    def observe(self, name: str, policy: str, work: Callable[[], Block], *, max_outstanding: int) -> Block:
        """Like `measure`, without a topic of its own."""
        os.sync()
        cpu, busy = self._sum(process.cpu_seconds), process.machine_busy_seconds()
        ours = _own_cpu_seconds()
        compiler = self._sum(process.compiler_seconds)
        counters, began = device.read_counters(self.device), time.monotonic()
        with Pauses() as pauses:
            result = work()
        seconds = time.monotonic() - began
        on_device = device.read_counters(self.device).since(counters)
        broker_cpu = self._sum(process.cpu_seconds) - cpu
        now_busy = process.machine_busy_seconds()
        client_cpu = _own_cpu_seconds() - ours
        foreign = now_busy[0] - busy[0] - broker_cpu - client_cpu
        block = {
            "name": name,
            "policy": policy,
            "figures": {**result, **_cost(broker_cpu, result["writes"])},
            "device": on_device.as_dict(),
            "seconds": round(seconds, 3),
            "broker_cpu_s": round(broker_cpu, 2),
            "client_cpu_share": round(client_cpu / seconds, 3),
            "compiler_cpu_share": round((self._sum(process.compiler_seconds) - compiler) / seconds, 3),
            "foreign_cpu_share": round(max(0.0, foreign) / seconds, 3),
            "longest_pause_ms": round(pauses.longest_ms, 1),
            "stolen_cpu_share": round((now_busy[1] - busy[1]) / seconds, 3),
            **_proof(policy, result["writes"], max_outstanding / self.flushed_copies, on_device.flushes),
        }
        self.blocks.append(block)
        return block


class LockstepSession(Session):
    """One node that flushes. Args: more: of its setup."""

    def __init__(self, sizes: Sizes, parent: Path, **more: Any) -> None:
        super().__init__(SUBJECT, Setup("lockstep", **more), sizes, parent)

    def start(self) -> None:
        """Without a warm-up: nothing is compiled here while it runs. TargetFailed."""
        self.start_s = self.target.start()


def _cost(broker_cpu_s: float, writes: float) -> Block:
    """The broker's CPU microseconds for one write, its reads and its warm-up in the block included."""
    return {"cpu_us": round(broker_cpu_s / writes * 1e6, 2)} if writes else {}


def _proof(policy: str, writes: float, max_outstanding: float, flushes: int) -> Block:
    needed = device.flushes_needed(writes, max_outstanding) if policy == FLUSH else 0.0
    return {
        "writes": round(writes),
        "flushes_per_write": round(flushes / writes, 4) if writes else 0.0,
        "flushes_needed": round(needed),
        "proven": flushes >= needed,
    }


def _own_cpu_seconds() -> float:
    ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in ours)
