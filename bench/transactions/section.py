"""The section of docs/benchmarks/ about transactions and of atomic appends. Measures nothing."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from bench.figures.ratios import medians
from bench.figures.tables import facts, reservations, table, with_failures, written_blocks
from bench.settings import RECORD_BYTES

CLIENT_SLEEPS = (
    "Of Kafka's time much is its client's sleep of 20 to 100 ms after CONCURRENT_TRANSACTIONS "
    "([decision 20](decisions/0020-transactions.md)): one producer with one transaction after the other is "
    "the worst case for it."
)


def transactions(result: dict[str, Any]) -> str:
    """Three nodes against three nodes, one transaction after another."""
    rows = [
        [name, result[side], f"{found['p50_ms']:.2f}", f"{found['commit_p50_ms']:.2f}"]
        for (name, _, side), blocks in written_blocks(result)
        for found in [medians(block["figures"] for block in blocks)]
    ]
    heads = ["block", "brokers", "begin to committed, p50 ms", "commit alone, p50 ms"]
    parts = [
        "## Transactions",
        facts(result),
        reservations(result),
        table(result, "github"),
        f"*How to read this.* Three nodes a side on this one machine and disk, replication factor 3, "
        f"min.insync.replicas=2; one confluent-kafka producer begins a transaction, writes a record of "
        f"{RECORD_BYTES} bytes to each of 1 or 10 partitions and commits, again and again. Both sides flush: "
        f"Apache Kafka with log.flush.interval.messages=1 for every topic, its internal ones included; a "
        f"heap of {result['heap']} each. *1 group*: lockstep.data.groups=1, so that a commit is one entry; "
        "*default "
        "groups*: partitions and coordinators are spread, and a commit takes two steps. " + CLIENT_SLEEPS,
        tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True),
    ]
    return with_failures(parts, result)


def atomic(result: dict[str, Any]) -> str:
    """One Produce request that is taken as a whole, against a transaction over the same partitions."""
    rows = []
    for (name, _, side), blocks in written_blocks(result):
        writes = sum(block["writes"] for block in blocks)
        commits = sum(block.get("group_commits", 0) for block in blocks)
        flushes = sum(block["device"]["flushes"] for block in blocks)
        cpu = sum(block["broker_cpu_s"] for block in blocks) / writes * 1e6
        found = medians(block["figures"] for block in blocks)
        latencies = [f"{found[each]:.2f}" for each in ("p50_ms", "p99_ms")]
        entries = f"{commits / writes:.2f}" if commits else ""
        rows.append([name, result[side], *latencies, f"{flushes / writes:.1f}", entries, f"{cpu:.0f}"])
    heads = [
        "block",
        "brokers",
        "p50 ms",
        "p99 ms",
        "flushes each",
        "log entries each",
        "brokers' CPU us each",
    ]
    parts = [
        "## Atomic appends",
        facts(result),
        reservations(result),
        table(result, "github"),
        f"*How to read this.* Three nodes a side on this one machine and disk, replication factor 3, "
        "min.insync.replicas=2, one client. Lockstep's own client (what `lockstep.transactions` appends "
        f"with) sends one Produce request with a record of {RECORD_BYTES} bytes for each of 10 partitions, "
        "which is taken as a whole, and waits for its answer; confluent-kafka begins a transaction, writes "
        "the same records and commits it, to Apache Kafka. The ratios are of these two. *bare* blocks send "
        "Lockstep the same batches without its client: the difference is what the client costs. Lockstep's "
        "topic has lockstep.locks=true, its records ask for no locks. Both sides flush, as for transactions "
        f"above; a heap of {result['heap']} each. *1 group*: lockstep.data.groups=1. *Default "
        "groups*: as many as by default, the topic's partitions in one of them (lockstep.group=1). "
        + CLIENT_SLEEPS,
        tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True),
    ]
    return with_failures(parts, result)
