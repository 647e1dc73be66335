"""The section of docs/benchmarks/ about three nodes. Measures nothing."""

from __future__ import annotations

import statistics
from typing import Any

from tabulate import tabulate

from bench.figures import kills
from bench.figures.tables import facts, reservations, table, with_failures, written_blocks
from bench.settings import FLUSH, OS, RECORD_BYTES


def section(result: dict[str, Any]) -> str:
    """Three nodes against three nodes."""
    heads = ["block", "policy", "brokers", "writes", "flushes/write", "commits", "flushes/replica and commit"]
    heads += ["device bytes/client byte", "brokers' CPU us/write"]
    written = tabulate(_written_rows(result), headers=heads, tablefmt="github", disable_numparse=True)
    parts = [
        "## Three nodes",
        facts(result),
        reservations(result),
        table(result, "github"),
        _kills(result),
        f"*How to read this.* Three nodes a side on this one machine and disk, pinned to nothing; "
        f"replication factor 3, acks=all, min.insync.replicas=2, records of {RECORD_BYTES} bytes. Apache "
        f"Kafka: each node broker and controller, a heap of {result['heap']} each (Kafka ships 1G). *1 "
        "partition*: in Lockstep of one data group. *3 partitions*: each led by another node, in Lockstep a "
        "group each; one producer alone writes to one of them. Kafka's acks=all waits for every replica in "
        "sync, Lockstep for a majority. The leader is lost "
        "by kill -9; the client asks the other nodes every 5 ms, so that no client's back-off is measured. "
        "Kafka's seconds until then are mostly a timer, `broker.session.timeout.ms`, 9 s as shipped.",
        written,
        "Device bytes are all replicas' together, on the one disk: three copies are three bytes per client "
        "byte, and files filled with zeros ahead of time count where they were filled (in a store that has "
        "run for long they are recycled instead). Flushes of a replica and group commit: the disk's flushes "
        "over the frames in all nodes' logs.",
        _lost_to_the_disk(result),
    ]
    return with_failures(parts, result)


def _kills(result: dict[str, Any]) -> str:
    """Each side's kills of a leader: median, worst, how many; empty where none was measured."""
    lines = [
        [row["title"], kills.words(row["subject_values"]), kills.words(row["baseline_values"])]
        for row in result["comparison"]
        if str(row.get("ratio", "")).startswith("loss.") and row["value"] is not None
    ]
    heads = ["", result["subject"], result["baseline"]]
    return tabulate(lines, headers=heads, tablefmt="github", disable_numparse=True) if lines else ""


def _lost_to_the_disk(result: dict[str, Any]) -> str:
    """The part of flushes in one producer's loss; empty where not all was measured."""
    p50 = {
        (policy, result[side]): statistics.median(block["figures"]["p50_ms"] for block in blocks)
        for (name, policy, side), blocks in written_blocks(result)
        if name == "latency1_1"
    }
    try:
        flushed, plain, shipped = p50[FLUSH, "lockstep"], p50[OS, "lockstep"], p50[OS, "kafka"]
    except KeyError:
        return ""
    cause = "what it loses is the disk's" if plain <= shipped else "what it loses is not the disk's alone"
    return (
        f"One producer of a durable Lockstep against a Kafka that never flushes: {cause}. Its p50 is "
        f"{plain:.2f} ms without flushes and {flushed:.2f} with, {flushed - plain:.2f} ms for two replicas' "
        f"flushes while a third one uses the same disk; Kafka as shipped takes {shipped:.2f} ms and has "
        "promised nothing. With three groups nine logs flush on that one disk, where a machine each would "
        "flush three, and three nodes, their clients and the kernel share two processors."
    )


def _written_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for (name, policy, side), blocks in written_blocks(result):
        writes = sum(block["writes"] for block in blocks)
        flushes = sum(block["device"]["flushes"] for block in blocks)
        client = RECORD_BYTES * sum(block["figures"]["total_records"] for block in blocks)
        device = sum(block["device"]["write_bytes"] for block in blocks)
        commits = sum(block.get("group_commits", 0) for block in blocks)
        each = [block["flushes_per_replica_and_commit"] for block in blocks if "group_commits" in block]
        cpu = sum(block["broker_cpu_s"] for block in blocks) / writes * 1e6
        rows.append(
            [
                name,
                policy,
                result[side],
                f"{writes:,}",
                f"{flushes / writes:.3f}",
                f"{commits:,}" if commits else "",
                f"{sum(each) / len(each):.2f}" if each and policy == "flush" else "",
                f"{device / client:.2f}",
                f"{cpu:.0f}",
            ]
        )
    return rows
