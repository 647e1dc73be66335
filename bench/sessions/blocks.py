"""The blocks of work that several comparisons are made of, each on a warm `Session`.

Owns: what is run to produce, in closed loops, to fan out, to fill, read and restart with a backlog, and how
much may be unacknowledged at once in each (the durability proof rests on it). Identical for both brokers.
Which of them run, and in which order, is each comparison's own `work`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench import raw
from bench.exit_status import log_progress
from bench.sessions.jobs import Block, RoundFailed, WrongCount, unclaimed_block
from bench.sessions.session import Session
from bench.settings import (
    FAN_OUT_GROUPS,
    FAN_OUT_WARM_SHARE,
    FILL_BATCH_RECORDS,
    FILL_WINDOW,
    PRODUCER_BATCH_BYTES,
    PRODUCER_IN_FLIGHT,
    PRODUCER_PROPERTIES,
    RECORD_BYTES,
)

_SUMMARY = re.compile(
    r"(?P<records>\d+)(?P<steady> steady state)? records sent, (?P<rate>[\d.]+) records/sec "
    r"\([\d.]+ MB/sec\)"
)
PERFORMANCE_TOOL = "org.apache.kafka.tools.ProducerPerformance"

READ_S = 2.0
"""A backlog of 512 MB is read in 0.15 s; how a connection and the scheduler settle would be half of that."""


def parse_producer_performance(output: str, record_bytes: int = RECORD_BYTES) -> Block:
    """The tool's steady-state line, and the records of the whole run. RoundFailed when it is not there."""
    found = list(_SUMMARY.finditer(output))
    steady = [match for match in found if match["steady"]]
    whole = [match for match in found if not match["steady"]]
    if not steady or not whole:
        raise RoundFailed(f"no steady-state summary in {output[-400:]!r}")
    return {
        "mb_per_s": float(steady[-1]["rate"]) * record_bytes / 1e6,
        "records_per_s": float(steady[-1]["rate"]),
        "total_records": int(whole[-1]["records"]),
    }


def produce(
    session: Session,
    policy: str,
    name: str = "produce",
    partitions: int = 1,
    *,
    record_bytes: int = RECORD_BYTES,
    records: int = 0,
    warmup: int = 0,
) -> None:
    """Throughput of Kafka's own load tool with a producer's default settings.

    Args:
        records: how many are measured; 0 for the number in the session's sizes.
        warmup: how many go first; 0 for the number in the session's sizes.
    """
    measured = records or session.sizes.produce_records[policy]
    warmup = warmup or session.sizes.client_warmup_records or measured // 3

    def work(topic: str) -> Block:
        arguments = ["--bootstrap-server", session.target.bootstrap, "--topic", topic]
        arguments += ["--num-records", str(measured + warmup), "--warmup-records", str(warmup)]
        arguments += ["--record-size", str(record_bytes), "--throughput", "-1"]
        for key, value in PRODUCER_PROPERTIES.items():
            arguments += ["--command-property", f"{key}={value}"]
        result = parse_producer_performance(session.run_java(PERFORMANCE_TOOL, arguments), record_bytes)
        result["writes"] = result["total_records"] * record_bytes / PRODUCER_BATCH_BYTES
        return result

    outstanding = PRODUCER_IN_FLIGHT * partitions  # the tool's one producer has so many per broker
    block = session.measure(name, policy, work, partitions=partitions, max_outstanding=outstanding)
    figures = block["figures"]
    report(block, f"{figures['mb_per_s']:.1f} MB/s, {figures['records_per_s']:,.0f} records/s")


def closed_loop(
    session: Session,
    name: str,
    policy: str,
    producers: int,
    partitions: int = 1,
    *,
    records: int = 1,
    spread: str = "turns",
) -> None:
    """Closed-loop producers on a topic of their own."""
    shape: dict[str, Any] = {"partitions": partitions, "records": records, "spread": spread}

    def measured(keep: str) -> Block:
        def work(topic: str) -> Block:
            result = session.closed_loop(topic, producers, **shape, keep=keep)
            return {**result, "writes": result["total_requests"]}

        return session.measure(name, policy, work, partitions=partitions, max_outstanding=producers)

    report_closed(_with_raw(session, f"{name}-{policy}", measured))


def _with_raw(session: Session, name: str, measured: Callable[[str], Block]) -> Block:
    """A block, its latencies kept where the session keeps any. Args: measured: given their file, or ""."""
    take = session.keep_raw
    if take is None:
        return measured("")
    return raw.take_block(lambda path: measured(str(path)), lambda samples: take(name, samples))


def report_closed(block: Block) -> None:
    """A line of progress on a block of closed-loop producers."""
    figures = block["figures"]
    report(
        block,
        f"{figures['requests_per_s']:,.0f} requests/s, p50 {figures['p50_ms']:.3f} ms, "
        f"p99 {figures['p99_ms']:.3f} ms, {figures['cpu_us']:.1f} us of the broker's CPU each",
    )


def fill(session: Session, policy: str, total_bytes: int = 0) -> tuple[str, Block]:
    """A backlog, and its topic. Args: total_bytes: 0 for the size of this run."""
    made: list[str] = []

    def work(topic: str) -> Block:
        made.append(topic)
        result = session.filled(topic, total_bytes or session.sizes.backlog_bytes)
        return {**result, "writes": result["total_requests"]}

    block = session.measure("fill", policy, work, max_outstanding=FILL_WINDOW)
    report(block, f"{block['figures']['mb_per_s']:.1f} MB/s")
    return made[0], block


def fan_out(session: Session, policy: str, total_bytes: int, groups: int = FAN_OUT_GROUPS) -> Block:
    """A writer, and groups that read all of it meanwhile; small ones first, which warm this up."""
    words = {"records": FILL_BATCH_RECORDS, "window": FILL_WINDOW, "groups": groups}

    def small() -> None:
        session.job(
            "fan_out", topic=session.topic(policy), total_bytes=total_bytes // FAN_OUT_WARM_SHARE, **words
        )

    session.warm(small)

    def work(topic: str) -> Block:
        result = session.job("fan_out", topic=topic, total_bytes=total_bytes, **words)
        return {**result, "writes": result["total_requests"]}

    block = session.measure("fan_out", policy, work, max_outstanding=FILL_WINDOW)
    report(block, f"{block['figures']['mb_per_s']:.0f} MB/s to {groups} groups")
    return block


def consume(session: Session, topic: str, filled: Block) -> None:
    """Read the backlog: checked once, then timed with the raw reader, again and again for `READ_S` each time,
    then with a real client if any."""
    expected = filled["figures"]["total_records"]
    checked = session.job("read_backlog", topic=topic, check=True)
    if checked["records"] != expected:
        raise RoundFailed(f"{session.kind}: {expected} records written, {checked['records']} read")
    policy = filled["policy"]
    for _ in range(session.sizes.read_passes):
        result = session.job("read_backlog", topic=topic, seconds=min(READ_S, session.sizes.latency_s))
        session.blocks.append(unclaimed_block("consume", policy, result))
        log_progress(f"  consume          {result['gb_per_s']:.2f} GB/s in {result['requests']} requests")
    if not session.sizes.client_read_records:
        return
    result = _consume_with_client(session, topic, min(expected, session.sizes.client_read_records))
    session.blocks.append(unclaimed_block("consume_client", policy, result))
    log_progress(f"  consume_client   {result['mb_per_s']:.0f} MB/s with librdkafka")


def _consume_with_client(session: Session, topic: str, records: int) -> Block:
    consumer = Consumer(
        {
            "bootstrap.servers": session.target.bootstrap,
            "group.id": "bench-backlog",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.queue.backoff.ms": 5,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        began = time.perf_counter()
        seen = 0
        while seen < records:
            messages = consumer.consume(5_000, timeout=30)
            if not messages:
                raise RoundFailed(f"{session.kind}: librdkafka saw {seen} of {records} records")
            failed = next((each.error() for each in messages if each.error() is not None), None)
            if failed is not None:
                raise RoundFailed(f"{session.kind}: librdkafka: {failed}")
            seen += len(messages)
        seconds = time.perf_counter() - began
    except KafkaException as error:
        raise RoundFailed(f"{session.kind}: librdkafka: {error}") from error
    finally:
        consumer.close()
    return {"records": seen, "seconds": seconds, "mb_per_s": seen * RECORD_BYTES / seconds / 1e6}


def restart(session: Session, topic: str, filled: Block) -> None:
    """kill -9 with the backlog present; seconds from the new process's start to its first acknowledgement."""
    records = filled["figures"]["total_records"]
    for number in range(session.sizes.restarts_per_session):
        session.target.kill9()
        with session.running_job("first_ack", topic=topic, timeout_s=120.0) as waiting:
            time.sleep(0.5)
            began_ns = time.monotonic_ns()
            ready_s = session.target.start()
        result = session.finish_job(waiting)
        figures = {
            "first_ack_s": (result["acked_ns"] - began_ns) / 1e9,
            "ready_s": ready_s,
            "attempts": result["attempts"],
            "backlog_bytes": filled["figures"]["bytes"],
        }
        stored = session.end_offsets(topic, 1)[0]
        if stored < records + number + 1:
            lost = records + number + 1 - stored
            raise WrongCount(f"{session.kind}: {lost} acknowledged records lost by kill -9")
        session.blocks.append(unclaimed_block("restart", filled["policy"], figures))
        log_progress(f"  restart          first acknowledged record after {figures['first_ack_s']:.2f} s")


def report(block: Block, text: str) -> None:
    """A line of progress on a block that wrote."""
    proof = f"{block['flushes_per_write']:.3f} flushes/write"
    if not block["proven"]:
        proof += f" (NOT PROVEN: {block['flushes_needed']} flushes needed)"
    elsewhere = block["foreign_cpu_share"]
    noise = f", other work used {elsewhere:.0%} of a CPU" if elsewhere > 0.1 else ""
    log_progress(f"  {block['name']:<12} {block['policy']:<5} {text}; {proof}{noise}")
