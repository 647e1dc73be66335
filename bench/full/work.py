"""The measurement of each kind of cell on a warm session, the same for every broker.

Owns: the blocks of kinds "produce", "drain", "fan_out", "idle", "start", "groups" and "failover"; each
gives one block with figures, device counters, CPU and memory (`bench.sessions`). Kind "command" needs no
session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.baselines.targets import OneBroker, ThreeBrokers
from bench.full.cells import Cell
from bench.machine.process import RssSampler
from bench.raw import take_block
from bench.sessions import blocks, groups
from bench.sessions.jobs import Block, RoundFailed, WrongCount, unclaimed_block
from bench.settings import FAN_OUT_BYTES, PRODUCERS

AnySession = OneBroker | ThreeBrokers
MEMORY_S = (0.5, 2.0)
"""Warm-up and length of a block of brokers that keep all in memory, at most."""
DRAIN_LEAD_S = 0.5
"""The writer writes for so long before the reader begins."""
WARM_S = 1.0
"""Slices of a block's own work before it is measured."""


def measure(session: AnySession, cell: Cell, policy: str, keep: Callable[[bytes], dict[str, Any]]) -> Block:
    """One block of this cell. Args: keep: takes raw latencies, returns the row's fields about them.
    RoundFailed."""
    sampler = RssSampler(session.target.pids)

    def work(raw: Path) -> Block:
        with sampler.sample_rss():
            return _measure(session, cell, policy, raw)

    block = take_block(work, keep)
    block["rss_max_mb"] = sampler.result()["rss_max_mb"]
    block["bytes"] = int(block["figures"].get("total_records", 0)) * cell.workload.message_bytes
    return block


def _measure(session: AnySession, cell: Cell, policy: str, raw: Path) -> Block:
    """Like `KINDS`; of three nodes, where a leader may have moved, what fails is tried once more."""

    def work() -> Block:
        return KINDS[cell.workload.kind](session, cell, policy, raw)

    if isinstance(session, OneBroker):
        return work()
    tried = len(session.again)
    block = session.once_more(str(cell), work)
    if session.again[tried:]:
        block["again"] = session.again[tried:]
    return block


def _producer_words(session: AnySession, cell: Cell, raw: Path, rate: int) -> dict[str, Any]:
    """The parameters of the job "pipelined_loop" for a cell."""
    workload = cell.workload
    times = (workload.warmup_s, workload.seconds)
    if not session.broker.keeps:
        times = (min(times[0], MEMORY_S[0]), min(times[1], MEMORY_S[1]))
    return {
        "partitions": cell.at.get("partitions", 1),
        "producers": cell.at.get("producers", 1),
        "rate": rate,
        "records": workload.records,
        "record_bytes": workload.message_bytes,
        "window": workload.in_flight,
        "warmup_s": times[0],
        "seconds": times[1],
        "keep": str(raw),
    }


def _for_a_while(words: dict[str, Any]) -> dict[str, Any]:
    """The same producers, to warm up with."""
    return {**words, "keep": "", "warmup_s": 0.0, "seconds": WARM_S}


def _warm_producers(session: AnySession, policy: str, words: dict[str, Any]) -> None:
    """The same producers for a while on a topic of their own, for brokers on a virtual machine alone: others
    compile nothing, and those in memory would fill it."""
    if session.kind != "kafka":
        return
    topic = session.topic(policy, words["partitions"])
    session.warm(lambda: session.job("pipelined_loop", topic=topic, **_for_a_while(words)))


def _produce(session: AnySession, cell: Cell, policy: str, raw: Path) -> Block:
    """Producers at a rate, or as fast as their windows allow."""
    words = _producer_words(session, cell, raw, cell.at["rate"])

    def work(topic: str) -> Block:
        result = session.job("pipelined_loop", topic=topic, **words)
        return {**result, "writes": result["total_requests"]}

    _warm_producers(session, policy, words)
    outstanding = words["producers"] * words["window"]
    partitions = words["partitions"]
    block = session.measure(str(cell), policy, work, partitions=partitions, max_outstanding=outstanding)
    figures = block["figures"]
    blocks.report(
        block,
        f"{figures['requests_per_s']:,.0f} requests/s, {figures['mb_per_s']:.1f} MB/s, "
        f"p50 {figures['p50_ms']:.3f} ms, p99 {figures['p99_ms']:.3f} ms",
    )
    return block


def _drain(session: AnySession, cell: Cell, policy: str, raw: Path) -> Block:
    """A backlog is read again and again while a producer writes at its rate, all its window long."""
    topic, filled = blocks.fill(session, policy, cell.at["backlog_mb"] << 20)
    words = _producer_words(session, cell, raw, cell.at["rate"])

    acknowledged = filled["figures"]["total_records"]

    def both(reading_s: float, **writing: Any) -> tuple[Block, Block]:
        nonlocal acknowledged
        with session.running_job("pipelined_loop", topic=topic, **writing) as writer:
            time.sleep(DRAIN_LEAD_S)
            read = session.job("read_backlog", topic=topic, seconds=reading_s)
        written = session.finish_job(writer)
        acknowledged += written["total_records"]
        return written, read

    def work() -> Block:
        written, read = both(words["warmup_s"] + words["seconds"] - DRAIN_LEAD_S, **words)
        return {
            **written,
            "writes": written["total_requests"],
            "drained_gb_per_s": read["gb_per_s"],
            "drained_s": read["seconds"],
            "drained_passes": read["passes"],
            "drained_records": read["records"],
        }

    session.warm(lambda: both(WARM_S, **_for_a_while(words)))
    block = session.observe(str(cell), policy, work, max_outstanding=words["window"])
    session.count_records(topic, 1, acknowledged)
    least = filled["figures"]["total_records"]
    if block["figures"]["drained_records"] < least:
        raise RoundFailed(
            f"{cell}: {least} records in the backlog, {block['figures']['drained_records']} read"
        )
    figures = block["figures"]
    blocks.report(
        block,
        f"{figures['drained_gb_per_s']:.2f} GB/s read in {figures['drained_passes']} passes, "
        f"writer's p99 {figures['p99_ms']:.2f} ms",
    )
    return block


def _fan_out(session: AnySession, cell: Cell, policy: str, raw: Path) -> Block:
    return blocks.fan_out(session, policy, FAN_OUT_BYTES, cell.at["groups"])


def _idle(session: AnySession, cell: Cell, policy: str, raw: Path) -> Block:
    """Sixteen producers beside so many idle connections; what one of these costs in memory."""
    count = cell.at["connections"]
    words = {**_producer_words(session, cell, raw, 0), "producers": PRODUCERS, "window": 1, "records": 1}
    _warm_producers(session, policy, words)
    with session.idle_connections(count) as kib_each:

        def work(topic: str) -> Block:
            result = session.job("pipelined_loop", topic=topic, **words)
            return {**result, "writes": result["total_requests"], "kib_each_connection": kib_each}

        block = session.measure(str(cell), policy, work, max_outstanding=PRODUCERS)
    blocks.report(block, f"{count} idle: {block['figures']['requests_per_s']:,.0f} requests/s")
    return block


def _start(session: AnySession, cell: Cell, policy: str, raw: Path) -> Block:
    """kill -9 with a backlog; from the new process's start to its first acknowledgement."""
    topic, filled = blocks.fill(session, policy, cell.at["backlog_mb"] << 20)
    blocks.restart(session, topic, filled)
    block = session.blocks[-1]
    block["figures"]["first_start_s"] = session.start_s
    return block


def _groups(session: AnySession, cell: Cell, policy: str, raw: Path) -> Block:
    """Offset commits, rebalances, idle members: the row "groups" of `python -m bench`."""
    before = len(session.blocks)
    groups.run(session, policy)
    found = session.blocks[before:]
    if not found:
        raise RoundFailed(f"{cell}: groups are measured where every write is flushed")
    figures = {
        f"{block['name']}_{name}": value
        for block in found
        for name, value in block["figures"].items()
        if isinstance(value, int | float)
    }
    weakest = min(found, key=lambda block: bool(block["proven"]))
    return {**weakest, "name": str(cell), "figures": figures}


def _failover(session: AnySession, cell: Cell, policy: str, raw: Path) -> Block:
    """The leader is killed under load; seconds until another acknowledges."""
    assert isinstance(session, ThreeBrokers)
    topic = session.topic(policy)
    figures = session.lose_leader(topic)
    session.await_replicas(topic)
    if (stored := sum(session.end_offsets(topic, 1))) < figures["total_records"]:
        raise WrongCount(f"{cell}: {figures['total_records'] - stored} acknowledged records lost")
    return unclaimed_block(str(cell), policy, figures)


KINDS: dict[str, Callable[[AnySession, Cell, str, Path], Block]] = {
    "produce": _produce,
    "drain": _drain,
    "fan_out": _fan_out,
    "idle": _idle,
    "start": _start,
    "groups": _groups,
    "failover": _failover,
}
