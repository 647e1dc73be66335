"""Members of a group on networks of their own: what they commit is on all, and stays when one is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lockstep.storage.group_options import node_of
from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.messages import Message
from tests.storage.cluster import Cluster, append
from tests.storage.peers.nodes import Node

TOPIC = bytes(range(16))


class Networked(Cluster):
    """As Cluster, but what members say goes over TCP."""

    nodes: dict[int, Node]

    async def begin(self) -> None:
        self.nodes = {node_id: Node(node_id) for node_id in self.voters}
        for node in self.nodes.values():
            await node.start()
        for node in self.nodes.values():
            node.add_node(*self.nodes.values())
            node.on_arrival = lambda group_id, message, node_id=node.node_id: self._arrived(node_id, message)
        await self.start()

    def _arrived(self, node_id: int, message: Message) -> None:
        group = self.groups.get(node_id)
        if group is not None:
            group.receive(message)

    def _send(self, sender: int, to: int, message: Message) -> None:
        if sender in self.nodes:
            self.nodes[sender].network.send(node_of(to), 1, message)

    async def end(self, node_id: int) -> None:
        await self.nodes.pop(node_id).network.close()
        await self.stop(node_id)


async def write(leader: LogGroup, count: int, size: int) -> None:
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    for place in range(count):
        append(leader, partition, b"%d" % place, b"x" * size)
        await leader.committed()


async def test_three_members_elect_replicate_and_go_on_without_one(tmp_path: Path) -> None:
    cluster = Networked(tmp_path)
    await cluster.begin()
    leader = await cluster.leader()
    await write(leader, 20, 1000)
    await write(leader, 3, 200_000)
    await cluster.agreed()
    gone = node_of(leader.raft.member_id)
    await cluster.end(gone)
    leader = await cluster.leader()
    assert node_of(leader.raft.member_id) != gone
    await write(leader, 5, 1000)
    await cluster.agreed()
    assert leader.commit_index >= 28
    for node_id in list(cluster.nodes):
        await asyncio.wait_for(cluster.end(node_id), 5)
