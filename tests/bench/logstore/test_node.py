"""A store's node in this process: what is written when it has run for long."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.load.wire import record_batch
from bench.logstore.node import COUNT, LENGTH, Node
from bench.logstore.replicas import Store
from compat_tests.clusters import free_ports
from compat_tests.probe import HOST
from tests.broker.waiting import until


class OneNode:
    """A store of one replica in this process, and its client, who sends one request after the other."""

    def __init__(self, directory: Path, store: Store) -> None:
        peer, self._port = free_ports(2)
        job = {**asdict(store), "directory": str(directory), "stream_bytes_per_s": 0}
        self.node = Node({**job, "node_id": 1, "peer_ports": {"1": peer}, "client_port": self._port})
        self._batch = record_batch(32, 4096, 0)
        self._count = self._untidied_bytes = 0

    async def start(self) -> None:
        await self.node.start()
        await until(lambda: self.node.group.is_leader, 60)
        assert await self.node.lead() == {"leader": True}
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port)

    async def write(self, total_bytes: int, tidied_bytes: int) -> None:
        """So much, and tidy up after each `tidied_bytes`; what that takes is waited for."""
        group = self.node.group
        for _ in range(total_bytes // len(self._batch)):
            self._writer.write(LENGTH.pack(len(self._batch)) + self._batch)
            self._count += 1
            while COUNT.unpack(await self._reader.readexactly(COUNT.size)) != (self._count,):
                pass
            group.log.prepare_now()
            self._untidied_bytes += len(self._batch)
            if self._untidied_bytes >= tidied_bytes:
                self._untidied_bytes = 0
                writing = group._replica.checkpointer.under_way
                if writing is not None:
                    await asyncio.wait([writing])
                await self.node.tidy()
                group.log.prepare_now()

    @property
    def zero_fill(self) -> int:
        return int(self.node.stats()["written"]["zero fill"])

    async def close(self) -> None:
        self._writer.close()
        await self.node.close()


async def test_a_store_that_has_run_for_long_uses_its_segments_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MiB = 1 << 20
    store = OneNode(tmp_path, Store(replicas=1, segment_bytes=MiB, kept_bytes=2 * MiB))
    await store.start()
    begun = store.zero_fill
    await store.write(12 * MiB, tidied_bytes=MiB // 2)
    filled = store.zero_fill
    await store.write(20 * MiB, tidied_bytes=MiB // 2)
    assert store.zero_fill == filled > begun, "from then on no segment is filled any more"

    monkeypatch.setattr("bench.logstore.node.HOUSEKEEPING_S", 0.001)
    housekeeping = asyncio.ensure_future(store.node.housekeep())
    partition = store.node.partition
    start = partition.log_start_offset
    await store.write(4 * MiB, tidied_bytes=8 * MiB)
    await until(lambda: partition.log_start_offset > start, 60)
    housekeeping.cancel()
    await asyncio.wait([housekeeping])
    await store.close()
