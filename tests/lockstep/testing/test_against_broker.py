"""The log in memory and a broker give the same answers to the same appends, word by word."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from lockstep.kafka_client.client import Client
from lockstep.testing import RunningBroker
from lockstep.testing.memory_log import MemoryLog
from lockstep.transactions.log import AppendRefused, Log, PartitionBatch, ReadLocks
from lockstep.transactions.model import Record, Refusal
from lockstep.transactions.remote import RemoteLog
from tests.lockstep.testing.appends import TIMEOUT_S, Writer

PARTITIONS = 3
NAMES = [b"a", b"b", b"c/%", b"\xff"]
APPENDS = 150


class Drawn:
    """Appends in random parts, each at random marks that are often a little too old."""

    def __init__(self, seed: int, memory_log: MemoryLog) -> None:
        self.random = random.Random(seed)
        self.memory_log = memory_log

    def parts(self) -> dict[int, PartitionBatch]:
        written = sorted(self.random.sample(range(PARTITIONS), self.random.choice((1, 1, 2, 3))))
        others = [number for number in range(PARTITIONS) if number not in written]
        other_read_locks = {
            number: ReadLocks(self.hwm(number), self.names(1))
            for number in others
            if self.random.random() < 0.4
        }
        return {
            number: self.part(number, other_read_locks if number == written[0] else {}) for number in written
        }

    def part(self, number: int, other_read_locks: Mapping[int, ReadLocks]) -> PartitionBatch:
        end = self.memory_log.end(number)
        return PartitionBatch(
            tuple(Record(b"%d" % self.random.randrange(100)) for _ in range(self.random.choice((1, 1, 3)))),
            self.hwm(number),
            self.names(0),
            self.names(0),
            self.names(0),
            max(0, end + self.random.choice((0, 0, 0, -1, 1))) if self.random.random() < 0.2 else None,
            other_read_locks,
        )

    def hwm(self, number: int) -> int:
        return max(-1, self.memory_log.end(number) - 1 - self.random.choice((0, 0, 0, 0, 1, 3, -1)))

    def names(self, least: int) -> tuple[bytes, ...]:
        return tuple(self.random.sample(NAMES, self.random.randint(least, 2)))


async def told(log: Log, writer: Writer, parts: Mapping[int, PartitionBatch]) -> Mapping[int, int] | Refusal:
    try:
        return await log.append(writer.of(parts), TIMEOUT_S * 10)
    except AppendRefused as refused:
        words = refused.refusal.text.split(" ")  # an atomic append's names the guilty batch, too
        return refused.refusal._replace(
            text=" ".join(each for each in words if not each.startswith("batch="))
        )


@pytest.mark.parametrize("seed", range(4))
async def test_the_same_answers(running: RunningBroker, topic: str, seed: int) -> None:
    async with Client(running.bootstrap_servers) as client:
        configs = {"lockstep.locks": "true", "lockstep.group": "1"}
        await client.create_topic(topic, partitions=PARTITIONS, configs=configs)
    memory_log = MemoryLog(PARTITIONS, seed=seed, topic=topic)
    double, remote = memory_log.connect(), RemoteLog(running.bootstrap_servers, topic, "test")
    assert await double.open() == await remote.open()
    drawn, reasons = Drawn(seed, memory_log), set()
    writers = Writer(double), Writer(remote)
    try:
        for _ in range(APPENDS):
            parts = drawn.parts()
            expected = await told(double, writers[0], parts)
            assert await told(remote, writers[1], parts) == expected
            reasons.add(expected.reason if isinstance(expected, Refusal) else "")
        for number in range(PARTITIONS):
            assert await remote.end(number) == memory_log.end(number)
            for writer in writers:
                await writer.catch_up(number)
    finally:
        await remote.close()
    assert reasons == {"", "LOCK", "AHEAD", "EXPECTED_OFFSET"}
    first, second = (
        [(each.partition, each.offset, each.records, each.request) for each in writer.read_entries]
        for writer in writers
    )
    assert first == second and len(first) > 20
