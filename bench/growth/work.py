"""One step of an axis, on a fresh node that flushes every acknowledged write.

Owns: what is loaded and what is read off. The load is the same open loop at every step of every axis, so that
CPU and latency of two steps differ by what grew alone; on the log's axis it goes to the partition that has
the log, once that was started and read. Figures: see `axes`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.growth.axes import RATE, WINDOW, Axis, Lengths
from bench.load.latency import quantiles
from bench.load.random_read import device_read, evict
from bench.machine import process
from bench.sessions.jobs import Block, RoundFailed, WrongCount, next_line
from bench.sessions.session import LockstepSession
from bench.settings import FILL_BATCH_RECORDS, FILL_WINDOW, FLUSH, PRODUCERS
from compat_tests.targets import LockstepTarget

Figures = dict[str, float]


def step(session: LockstepSession, axis: Axis, value: int, lengths: Lengths) -> Figures:
    """Start the node, bring it to `value`, measure. RoundFailed, TargetFailed."""
    session.start()
    if axis.name == "log_gib":
        return _log(session, value, lengths)
    if axis.name == "groups":
        with _idle_groups(session, value):
            return _measure_load(session, lengths)
    partitions = value if axis.name == "partitions" else 1
    producers = value if axis.name == "connections" else PRODUCERS
    idle = value if axis.name == "connections" else 0
    return _measure_load(session, lengths, partitions, producers, idle)


def _measure_load(
    session: LockstepSession,
    lengths: Lengths,
    partitions: int = 1,
    producers: int = PRODUCERS,
    idle_connections: int = 0,
) -> Figures:
    """The load's figures, and those at rest, with so many idle connections."""
    work = _load(session, lengths, partitions, producers)
    outstanding = producers * WINDOW
    block = session.measure("growth", FLUSH, work, partitions=partitions, max_outstanding=outstanding)
    with session.idle_connections(idle_connections):
        rest = _at_rest(session, lengths)
    return {**_costs(block), "held_connections": float(idle_connections), **rest}


def _load(
    session: LockstepSession, lengths: Lengths, partitions: int = 1, producers: int = PRODUCERS
) -> Callable[[str], Block]:
    """The load on a topic at every step."""

    def work(topic: str) -> Block:
        words = {"partitions": partitions, "producers": producers, "rate": RATE, "window": WINDOW}
        times = {"warmup_s": lengths.warmup_s, "seconds": lengths.seconds}
        result = session.job("pipelined_loop", topic=topic, records=1, **words, **times)
        return {**result, "writes": result["total_requests"]}

    return work


def _costs(block: Block) -> Figures:
    """The figures of a block of the load."""
    figures = block["figures"]
    return {
        "cpu_s_per_million_records": block["broker_cpu_s"] / figures["total_records"] * 1e6,
        "requests_per_s": figures["requests_per_s"],
        "p50_ms": figures["p50_ms"],
        "p99_ms": figures["p99_ms"],
        "foreign_cpu_share": block["foreign_cpu_share"],
    }


def _at_rest(session: LockstepSession, lengths: Lengths) -> Figures:
    """Memory, and the CPU of an idle node."""
    (pid,) = session.target.pids
    before = process.cpu_seconds(pid)
    time.sleep(lengths.idle_s)
    spent = process.cpu_seconds(pid) - before
    return {"rss_mb": process.rss_bytes(pid) / 1e6, "idle_cpu_share": spent / lengths.idle_s}


@contextmanager
def _idle_groups(session: LockstepSession, count: int) -> Iterator[None]:
    """So many groups with a member each, joined and settled."""
    topic = session.topic(FLUSH)
    with session.holding_job("hold_members", topic=topic, groups=count, members=1) as child:
        next_line(child, "members")
        assert child.stdout is not None
        line = child.stdout.readline()
        if '"held"' not in line:
            raise RoundFailed(f"{count} groups are not held: {line.strip()}")
        yield


def _log(session: LockstepSession, value: int, lengths: Lengths) -> Figures:
    """A log of so many units: kill -9, evict all, start; evict again, read at random places, and once more
    while the broker is idle; then the load."""

    def work(topic: str) -> Block:
        words = {"records": FILL_BATCH_RECORDS, "window": FILL_WINDOW}
        words["total_bytes"] = lengths.fill_bytes_per_unit
        parts = [session.job("fill", topic=topic, **words) for _ in range(value)]
        sums = {name: sum(part[name] for part in parts) for name in ("bytes", "total_records")}
        return {**sums, "writes": sum(part["total_requests"] for part in parts)}

    block = session.measure("growth", FLUSH, work, max_outstanding=FILL_WINDOW)
    topic, records = block["topic"], block["figures"]["total_records"]
    target = session.target
    assert isinstance(target, LockstepTarget)
    target.kill9()
    evict(target.data_dir)
    with session.running_job("first_ack", topic=topic, timeout_s=300.0) as waiting:
        time.sleep(0.5)
        began_ns = time.monotonic_ns()
        target.start()
    acked = session.finish_job(waiting)
    figures = {"start_s": (acked["acked_ns"] - began_ns) / 1e9, "bytes": float(block["figures"]["bytes"])}
    evict(target.data_dir)
    figures |= session.job("random_read", topic=topic, end_offset=records, reads=lengths.reads)
    evict(target.data_dir)
    alone = quantiles(device_read(target.data_dir, lengths.reads))
    figures |= {f"device_read_{name}": value for name, value in alone.items()}
    return {**figures, **_at_rest(session, lengths), **_written_to(session, topic, lengths)}


def _written_to(session: LockstepSession, topic: str, lengths: Lengths) -> Figures:
    """The load on a topic that has a log already, and memory after it. WrongCount."""
    work = _load(session, lengths)
    before = session.end_offsets(topic, 1)[0]
    block = session.observe("growth", FLUSH, lambda: work(topic), max_outstanding=PRODUCERS * WINDOW)
    acknowledged, stored = block["figures"]["total_records"], session.end_offsets(topic, 1)[0] - before
    if stored != acknowledged:
        raise WrongCount(f"{acknowledged} records acknowledged, {stored} added to {topic}")
    (pid,) = session.target.pids
    return {**_costs(block), "loaded_rss_mb": process.rss_bytes(pid) / 1e6}
