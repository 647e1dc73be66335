"""The damaged offset ranges of all nodes: each node reports its own, and gives them up on request.

Invariant: nothing is reported of a node that does not answer within `ANSWER_SECONDS`. Does not: know which
ranges are damaged (`broker/damage.py`).
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from broker.cluster.peering import Asked, Peering
from broker.damage import Document, give_up, node_damage
from broker.metadata import Cluster
from storage.peers.limits import PeerError, PeerUnreachable

if TYPE_CHECKING:
    from broker.cluster.nodes import Nodes

ANSWER_SECONDS: Final = 1.0


class DamageReports:
    """Reports of this node and its peers. Args: peering: None for a cluster of one node."""

    def __init__(self, cluster: Cluster, nodes: Nodes, peering: Peering | None) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._peering = peering
        if peering is not None:
            peering.handlers[Asked.DAMAGE] = self._serve

    async def known(self) -> list[Document]:
        """The damaged ranges of all nodes, by node."""
        return await self._ask_all({})

    async def give_up(self, topic: str, index: int) -> list[Document]:
        """Give up the damaged ranges of a partition on all nodes; returns them, by node. Raises OSError."""
        return await self._ask_all({"topic": topic, "partition": index})

    async def _ask_all(self, question: Document) -> list[Document]:
        here = self._nodes.node_id
        others = [] if self._peering is None else [each for each in self._nodes.alive() if each != here]
        answers = await asyncio.gather(*(self._ask(each, question) for each in sorted(others)))
        return [*self._answer(question), *(document for each in answers for document in each)]

    async def _ask(self, node_id: int, question: Document) -> list[Document]:
        assert self._peering is not None
        try:
            answer = await self._peering.network.ask(
                node_id, Asked.DAMAGE, json.dumps(question).encode(), ANSWER_SECONDS
            )
        except (PeerError, PeerUnreachable, TimeoutError):
            return []
        found: list[Document] = json.loads(answer)
        return found

    def _answer(self, question: Document) -> list[Document]:
        topic = question.get("topic")
        if topic is None:
            found = node_damage(self._cluster)
        else:
            found = give_up(self._cluster, str(topic), int(question["partition"]))
        return [{"node": self._nodes.node_id, **each} for each in found]

    async def _serve(self, node_id: int, body: bytes) -> bytes:
        try:
            return json.dumps(self._answer(json.loads(body))).encode()
        except OSError as error:
            raise PeerError(f"the file of damaged ranges cannot be written: {error}") from error
