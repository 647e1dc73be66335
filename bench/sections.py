"""Sections of docs/benchmarks.md beyond one broker: three nodes, transactions, and seed 001's experiments.

Owns the wording; measures nothing.
"""

from __future__ import annotations

import statistics
from typing import Any

from tabulate import tabulate

from bench.contention import figures as contended
from bench.feed import figures as feeds
from bench.logstore.tables import SEEDS_HEADLINES, summary
from bench.settings import FLUSH, OS, RECORD_BYTES
from bench.tables import facts, reservations, table, written_blocks

Block = dict[str, Any]
CONTENTION_PICTURE = "contention.svg"
"""As the next one, by `python -m bench contention`."""
PICTURE = "logstore.svg"
"""Beside the page: `python -m bench logstore --plot RESULT.json --picture docs/logstore.svg`."""


def nodes3(result: dict[str, Any]) -> str:
    """Three nodes against three nodes."""
    heads = ["block", "policy", "brokers", "writes", "flushes/write", "commits", "flushes/replica and commit"]
    heads += ["device bytes/client byte", "brokers' CPU us/write"]
    written = tabulate(_written_rows(result), headers=heads, tablefmt="github", disable_numparse=True)
    parts = [
        "## Three nodes",
        f"Three nodes a side on this one machine and disk, pinned to nothing; replication factor 3, "
        f"acks=all, min.insync.replicas=2, records of {RECORD_BYTES} bytes. Apache Kafka: each node broker "
        f"and controller, a heap of {result['heap']} each (Kafka ships 1G). *1 group*: one partition and one "
        "data group in Lockstep. *3 groups*: three partitions, each led by another node, in Lockstep a group "
        "each. Kafka's acks=all waits for every replica in sync, Lockstep for a majority. The leader is lost "
        "by kill -9; the client asks the other nodes every 5 ms, so that no client's back-off is measured.",
        facts(result),
        reservations(result),
        table(result, "github"),
        written,
        "Device bytes are all replicas' together, on the one disk: three copies are three bytes per client "
        "byte, and files filled with zeros ahead of time count where they were filled (in a store that has "
        "run for long they are recycled instead). Flushes of a replica and group commit: the disk's flushes "
        "over the frames in all nodes' logs.",
        _lost_to_the_disk(result),
    ]
    return _with_failures([part for part in parts if part], result)


def _lost_to_the_disk(result: dict[str, Any]) -> str:
    """Why durable Lockstep is slower than a Kafka that does not flush; empty where not all was measured."""
    p50 = {
        (policy, result[side]): statistics.median(block["figures"]["p50_ms"] for block in blocks)
        for (name, policy, side), blocks in written_blocks(result)
        if name == "latency1_1"
    }
    try:
        flushed, plain, shipped = p50[FLUSH, "lockstep"], p50[OS, "lockstep"], p50[OS, "kafka"]
    except KeyError:
        return ""
    return (
        f"Where a durable Lockstep loses to a Kafka that never flushes, it is the disk: one producer's p50 "
        f"is {plain:.2f} ms without flushes and {flushed:.2f} with, {flushed - plain:.2f} ms for two "
        f"replicas' flushes while a third one uses the same disk; Kafka as shipped takes {shipped:.2f} ms "
        "and has promised nothing. With three groups nine logs flush on that one disk, where a machine each "
        "would flush three, and three nodes, their clients and the kernel share two processors."
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


def transactions(result: dict[str, Any]) -> str:
    """Three nodes against three nodes, one transaction after another."""
    rows = [
        [name, result[side], f"{p50:.2f}", f"{commit:.2f}"]
        for (name, _, side), blocks in written_blocks(result)
        for p50, commit in [_medians(blocks)]
    ]
    heads = ["block", "brokers", "begin to committed, p50 ms", "commit alone, p50 ms"]
    parts = [
        "## Transactions",
        f"Three nodes a side on this one machine and disk, replication factor 3, min.insync.replicas=2; one "
        f"confluent-kafka producer begins a transaction, writes a record of {RECORD_BYTES} bytes to each of "
        f"1 or 10 partitions and commits, again and again. Both sides flush: Apache Kafka with "
        f"log.flush.interval.messages=1 for every topic, its internal ones included; a heap of "
        f"{result['heap']} each. *1 group*: lockstep.data.groups=1, so that a commit is one entry; *default "
        "groups*: partitions and coordinators are spread, and a commit takes two steps.",
        facts(result),
        table(result, "github"),
        tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True),
    ]
    return _with_failures(parts, result)


def atomic(result: dict[str, Any]) -> str:
    """One Produce request that is taken as a whole, against a transaction over the same partitions."""
    rows = []
    for (name, _, side), blocks in written_blocks(result):
        writes = sum(block["writes"] for block in blocks)
        commits = sum(block.get("group_commits", 0) for block in blocks)
        flushes = sum(block["device"]["flushes"] for block in blocks)
        cpu = sum(block["broker_cpu_s"] for block in blocks) / writes * 1e6
        p50, p99 = (
            statistics.median(block["figures"][each] for block in blocks) for each in ("p50_ms", "p99_ms")
        )
        entries = f"{commits / writes:.2f}" if commits else ""
        rows.append(
            [name, result[side], f"{p50:.2f}", f"{p99:.2f}", f"{flushes / writes:.1f}", entries, f"{cpu:.0f}"]
        )
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
        f"Three nodes a side on this one machine and disk, replication factor 3, min.insync.replicas=2, one "
        "client. Lockstep's own client (what `lockstep.transactions` appends with) sends one Produce request "
        f"with a record of {RECORD_BYTES} bytes for each of 10 partitions, which is taken as a whole, and "
        "waits for its answer; confluent-kafka begins a transaction, writes the same records and commits it, "
        "to Apache Kafka. The ratios are of these two. *bare* blocks send Lockstep the same batches without "
        "its client: the difference is what the client costs. Lockstep's topic has lockstep.locks=true, its "
        "records ask for no locks. Both sides flush, as for transactions above; a heap of "
        f"{result['heap']} each. *1 group*: lockstep.data.groups=1. *Default "
        "groups*: as many as by default, the topic's partitions in one of them (lockstep.group=1).",
        facts(result),
        table(result, "github"),
        tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True),
    ]
    return _with_failures(parts, result)


def contention(result: dict[str, Any]) -> str:
    """Clients that want the same few accounts."""
    parts = [
        "## Contention",
        "One node that flushes, and clients (`lockstep.transactions`; 16 where the command says nothing "
        "else), each a process of its own, all on this one machine. A transaction reads the balance of "
        "one of so many hot accounts and writes it again under a write lock; the next one begins when "
        "this one is applied. Every client applies everybody's transactions. Medians over the rounds; "
        "shares and waits are the worst of them. Nobody starves: each client has at least "
        f"{contended.LEAST_SHARE:.0%} of a client's mean successes, and none waits for one longer than "
        f"{contended.MOST_MEAN_WAITS:.0f} mean waits, or {contended.FORGIVEN_WAIT_S:.0f} s where that is "
        "longer. Afterwards the log was read: each success is there once, no update was lost.",
        facts(result),
        f"![Contention: goodput, refusals, shares and waits]({CONTENTION_PICTURE})",
        contended.table(result, "github"),
    ]
    return _with_failures(parts, result)


def feed(result: dict[str, Any]) -> str:
    """What bodies cost those who do not look at them."""
    parts = [
        "## A feed without bodies",
        "One node; topics of transactions, a record with a request, a lock and one header of the "
        "application each, read from the beginning to the end by what a transaction client reads with, "
        "which looks at no body. CPU per transaction, medians over the rounds. What a body costs above "
        "the empty one is the most that a Fetch without bodies could save; the last column is what taking "
        "the body out of one batch takes, which the broker would have to do for each transaction and each "
        "reader, where now it sends what lies on the disk. Bytes of a network are not in these figures; "
        "the second column has them.",
        facts(result),
        feeds.table(result, "github"),
    ]
    return _with_failures(parts, result)


def _with_failures(parts: list[str], result: dict[str, Any]) -> str:
    if result["failures"]:
        parts.append("Failed: " + "; ".join(text.splitlines()[0] for text in result["failures"]))
    return "\n\n".join(parts) + "\n"


def _medians(blocks: list[Block]) -> tuple[float, float]:
    figures = [block["figures"] for block in blocks]
    return (
        statistics.median(each["p50_ms"] for each in figures),
        statistics.median(each["commit_p50_ms"] for each in figures),
    )


def logstore(result: dict[str, Any]) -> str:
    """Seed 001's figure 7, and ours."""
    cap = result["stream_bytes_per_s"] / 1e6
    axes = result["axes"]
    parts = [
        "## Seed 001's experiments",
        "Log groups in processes of their own on this machine, an open-loop client in another; every "
        f"stream is capped at {cap:.0f} MB/s as on the seed's network. One request is one atomic batch, of "
        f"{axes['batch']} payloads where nothing else is said; latency counts from when it was due. The "
        "naive store is made of the same parts and writes every payload to the Raft log and, once "
        "committed, to a second log; the second copy has no flush of its own. The seed states neither "
        "payload sizes nor a flush policy: both policies were run. Lost messages are appends and their "
        "answers, dropped before they are sent.",
        facts(result),
        f"![Seed 001's figures 7a to 7d and pipeline depths]({PICTURE})",
        tabulate(list(SEEDS_HEADLINES.items()), headers=["figure", "the seed"], tablefmt="github"),
        summary(result, "github"),
        "*7a*: ours over the naive store's: bytes that the stores wrote (files filled with zeros "
        "included), bytes in their logs, bytes that reached the device, space allocated. *Most CPU*: who "
        "used most of one CPU, and all processes together; the machine is saturated where all together "
        f"use all of its {result['machine']['cpus']} CPUs. The last table of each policy itemises what a "
        "replica wrote for a byte of payload in 7c; segments were recycled, nothing was cleaned.",
    ]
    if result["failures"]:
        parts.append(f"{len(result['failures'])} runs failed twice and are left out.")
    return "\n\n".join(parts) + "\n"
