"""Damage of log files on all nodes: each tells what it knows of its own, and gives it up when it is asked to.

Invariant: a node that does not answer in time tells of nothing; status shows that it is not alive. Does not:
know damage (`broker/damage.py`).
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from broker.cluster.peering import Asked, Peering
from broker.damage import Document, damage_here, give_up
from broker.metadata import Cluster
from storage.peers.limits import PeerError

if TYPE_CHECKING:
    from broker.cluster.nodes import Nodes

ANSWER_SECONDS: Final = 1.0


class DamageReports:
    """Args: peering: None for a node alone."""

    def __init__(self, cluster: Cluster, nodes: Nodes, peering: Peering | None) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._peering = peering
        if peering is not None:
            peering.handlers[Asked.DAMAGE] = self._asked

    async def known(self) -> list[Document]:
        """All of it, by node."""
        return await self._all({})

    async def give_up(self, topic: str, index: int) -> list[Document]:
        """Give up what is damaged of a partition on any node; what that is, by node. OSError."""
        return await self._all({"topic": topic, "partition": index})

    async def _all(self, asked: Document) -> list[Document]:
        here = self._nodes.node_id
        others = [] if self._peering is None else [each for each in self._nodes.alive() if each != here]
        told = await asyncio.gather(*(self._of(each, asked) for each in sorted(others)))
        return [*self._answer(asked), *(document for each in told for document in each)]

    async def _of(self, node_id: int, asked: Document) -> list[Document]:
        assert self._peering is not None
        try:
            answer = await self._peering.network.ask(
                node_id, Asked.DAMAGE, json.dumps(asked).encode(), ANSWER_SECONDS
            )
        except (PeerError, TimeoutError):
            return []
        found: list[Document] = json.loads(answer)
        return found

    def _answer(self, asked: Document) -> list[Document]:
        topic = asked.get("topic")
        if topic is None:
            found = damage_here(self._cluster)
        else:
            found = give_up(self._cluster, str(topic), int(asked["partition"]))
        return [{"node": self._nodes.node_id, **each} for each in found]

    async def _asked(self, node_id: int, body: bytes) -> bytes:
        try:
            return json.dumps(self._answer(json.loads(body))).encode()
        except OSError as error:
            raise PeerError(f"it could not be written down: {error}") from error
