"""Clusters of real brokers in this process, on small files and ports of their own.

    async def test_it(start_cluster: StartCluster) -> None:
        cluster = await start_cluster(3)
        await cluster.settled()
        client = await cluster.client(1)

`start_cluster` is a fixture of `tests/broker/conftest.py`. A stop here is a clean one, which hands leadership
over; processes that are killed are `tests/torture`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from compat_tests.probe import free_port
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.server import Broker
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.storage.group_options import node_of
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.types import NotLeader
from tests.broker.wire import Client

SETTLE_SECONDS = 60.0
POLL_INTERVAL_SECONDS = 0.02

SMALL = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "lockstep.segment.bytes": str(1 << 20),
    "lockstep.spare.segments": "1",
    "message.max.bytes": "200000",
    "lockstep.shutdown.timeout.ms": "500",
    "log.flush": "os",
}
"""Settings of every broker in tests of brokers."""


class BrokerCluster:
    """Brokers that know each other; `brokers` has those that run, by node id.

    Args:
        directory: node N's data are in `directory/N`.
        texts: property names with underscores for dots, for every node; "{node}" in a value is its id.
    """

    def __init__(self, directory: Path, founders: int = 3, **texts: str) -> None:
        self.directory = directory
        self.brokers: dict[int, Broker] = {}
        self._texts = {name.replace("_", "."): text for name, text in texts.items()}
        self._peers = {node_id: free_port() for node_id in range(1, founders + 1)}
        self._ports: dict[int, int] = {}
        self._clients: list[Client] = []

    # --- lifecycle ------------------------------------------------------------------------------------------

    async def start(self, *node_ids: int) -> None:
        """Start these nodes, or all that are known; a new id is a node that is to be added."""
        for node_id in node_ids or tuple(self._peers):
            self._peers.setdefault(node_id, free_port())
            broker = Broker(self.settings(node_id))
            await broker.start()
            self.brokers[node_id] = broker
            self._ports[node_id] = broker.port

    async def stop(self, *node_ids: int) -> None:
        """Stop these nodes, or all, cleanly."""
        for node_id in node_ids or tuple(self.brokers):
            await self.brokers.pop(node_id).stop()

    def wipe(self, node_id: int) -> None:
        """A stopped node loses its disk."""
        assert node_id not in self.brokers
        shutil.rmtree(self.directory / str(node_id))

    def move(self, node_id: int) -> None:
        """A stopped node gets other ports."""
        assert node_id not in self.brokers
        self._peers[node_id] = free_port()
        self._ports.pop(node_id, None)

    async def close(self) -> None:
        """Leave nothing behind."""
        for client in self._clients:
            await client.close()
        await self.stop()

    def settings(self, node_id: int) -> Settings:
        """A node's; a node that comes back has its old ports."""
        peers = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._peers.items())
        return from_texts(
            {
                **SMALL,
                "node.id": str(node_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{self._ports.get(node_id, 0)}",
                "lockstep.peers": peers,
                "log.dirs": str(self.directory / str(node_id)),
                **{name: text.replace("{node}", str(node_id)) for name, text in self._texts.items()},
            }
        )

    async def client(self, node_id: int) -> Client:
        """A connection to a node, closed at the end."""
        client = await Client.connect(self.brokers[node_id].port)
        self._clients.append(client)
        return client

    async def create(self, topic: str, group: int = 1) -> tuple[int, Client]:
        """Create a topic; the node that leads a group, and a client of it."""
        await (await self.client(1)).create(topic)
        leading = self.leader_of(group)
        assert leading is not None
        return leading, await self.client(leading)

    # --- what is there --------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """All nodes that run."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def leader_of(self, group: int) -> int | None:
        """The node that takes appends to a group, if one does."""
        for node_id, broker in self.brokers.items():
            if group in broker.groups and broker.groups[group].is_leader:
                return node_id
        return None

    @property
    def controller(self) -> Broker:
        """The broker that leads group 0."""
        leader = self.leader_of(METADATA_GROUP)
        assert leader is not None
        return self.brokers[leader]

    async def settled(self) -> None:
        """Every node that runs is registered, and every group that is placed somewhere has a leader."""
        await self.until(lambda: self.leader_of(METADATA_GROUP) is not None, "a controller")
        await self.until(lambda: self._is_settled(), "a cluster that is settled")

    async def led_by(self, group: int, node_id: int) -> None:
        """Have a node lead a group. Asked for until it does: a handover that takes long is given up."""

        def led() -> bool:
            for broker in self.brokers.values():
                found = broker.groups.get(group)
                if found is not None and found.is_leader:
                    (heir,) = (each for each in found.raft.configuration.voters if node_of(each) == node_id)
                    if found.raft.member_id == heir:
                        return True
                    with contextlib.suppress(ConfigurationRejected, NotLeader):
                        found.transfer(heir)
            return False

        await self.until(led, f"group {group} that node {node_id} leads")

    def _is_settled(self) -> bool:
        placed = None
        for broker in self.brokers.values():
            image = broker.assembly.cluster.image
            if not set(self.brokers) <= set(image.nodes) or not image.placement:
                return False
            placed = image.placement
        return placed is not None and all(self.leader_of(group) is not None for group in placed)

    async def until(
        self, holds: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = SETTLE_SECONDS
    ) -> None:
        """Wait until something holds. Raises AssertionError."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = holds()
            if found is True or (not isinstance(found, bool) and await found):
                return
            assert asyncio.get_running_loop().time() < deadline, f"no {what} within {seconds:g} s"
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
