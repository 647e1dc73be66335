"""Producing and consuming from the command line while the nodes of a cluster go: named ones, and leaders."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from lockstep.kafka_client.client import Client
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster, start_cluster

__all__ = ["start_cluster"]

PATIENCE_S = 60.0
ADVICE = "a majority of the nodes may be missing (`lockstep cluster status` shows)"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}


async def command(cluster: BrokerCluster, named: int, *words: str) -> Process:
    """Running, and told of one node alone."""
    bootstrap = ("--bootstrap", f"127.0.0.1:{cluster.brokers[named].port}")
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lockstep",
        *words,
        *bootstrap,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=ENVIRONMENT,
    )


async def lines(process: Process, count: int) -> list[bytes]:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return [await process.stdout.readline() for _ in range(count)]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
async def test_both_continue_without_their_bootstrap_node(start_cluster: StartCluster, acks: str) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    async with Client(",".join(f"127.0.0.1:{each.port}" for each in cluster.brokers.values())) as client:
        topic = await client.create_topic("t", partitions=1, replication=3)
        (leader,) = {each.leader for each in topic.partitions}
    consumer = await command(cluster, leader, "consume", "t", "--from-beginning", "--follow")
    producer = await command(cluster, leader, "produce", "t", "--acks", acks)
    assert producer.stdin is not None
    producer.stdin.write(b"one\n")
    assert await lines(consumer, 1) == [b"one\n"]
    await cluster.stop(leader)
    producer.stdin.write(b"two\n")
    assert await lines(consumer, 1) == [b"two\n"]
    producer.stdin.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await producer.communicate() == (b"", b"")
    assert producer.returncode == 0
    consumer.terminate()
    assert await consumer.communicate() == (b"", b"")


async def test_without_a_majority_a_command_ends_with_a_hint(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    async with Client(f"127.0.0.1:{cluster.brokers[1].port}") as client:
        await client.create_topic("t", partitions=1)
    await cluster.stop(2, 3)

    async def ends(words: tuple[str, ...], about: str) -> None:
        process = await command(cluster, 1, *words)
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        assert (process.returncode, out) == (1, b""), err
        assert f"{about}; {ADVICE}" in err.decode() and err.count(b"\n") == 1, (words, err)

    no_controller = "no node is the controller now"
    await asyncio.gather(
        ends(("topics", "create", "new"), no_controller),
        ends(("topics", "delete", "t"), no_controller),
        ends(("topics", "alter", "t", "-p", "9"), no_controller),
        ends(("configs", "alter", "topic", "t", "retention.ms=5"), no_controller),
        ends(("topics", "describe", "t"), "the partition has no leader now"),
        ends(("groups", "describe", "g"), "no node can serve it now"),
    )


async def test_a_node_that_never_had_a_majority_lists_no_topics_and_gives_a_hint(
    tmp_path: Path,
) -> None:
    """It closes the connection of a request for all topics; the command named the node's log alone."""
    cluster = BrokerCluster(tmp_path)
    await cluster.start(1)
    try:
        for words in (("topics", "list"), ("topics", "list", "--json"), ("topics", "create", "new")):
            process = await command(cluster, 1, *words)
            async with asyncio.timeout(PATIENCE_S):
                out, err = await process.communicate()
            assert (process.returncode, out) == (1, b""), err
            assert f"no node is the controller now; {ADVICE}" in err.decode(), (words, err)
            assert err.count(b"\n") == 1
    finally:
        await cluster.close()
