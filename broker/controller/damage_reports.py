"""The damaged offset ranges of all nodes: each node reports its own, and gives them up on request.

Invariant: a node that does not respond within `RESPONSE_TIMEOUT_SECONDS` is named. Does not: know which
ranges are damaged (`broker/maintenance/damage.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.broker.maintenance.damage import Document, give_up, node_damage
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.peers.peer_rpc import PeerRpc, RequestKind
from lockstep.storage.peers.limits import PeerError, PeerUnreachable

if TYPE_CHECKING:
    from lockstep.broker.peers.node_registry import NodeRegistry

ANSWER_SECONDS: Final = 1.0


class DamageAnswers(NamedTuple):
    """Ranges by node, and of each node without a response its id (`node`) and the `reason` in words."""

    ranges: list[Document]
    unanswered: list[Document]


class DamageReports:
    """Reports of this node and its peers. Args: peering: None for a cluster of one node."""

    def __init__(self, cluster: MetadataCache, nodes: NodeRegistry, peering: PeerRpc | None) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._peering = peering
        if peering is not None:
            peering.handlers[RequestKind.DAMAGE] = self._serve

    async def damage_known(self) -> DamageAnswers:
        """The damaged ranges of all nodes that live, by node."""
        here = self._nodes.node_id
        others = [] if self._peering is None else [each for each in self._nodes.alive() if each != here]
        answers = await self._ask_all({}, others)
        return DamageAnswers([*self._answer({}), *answers.ranges], answers.unanswered)

    async def give_up(self, topic: str, index: int) -> DamageAnswers:
        """Give up the damaged ranges of a partition on all nodes with a copy; the ranges newly given up."""
        here, question = self._nodes.node_id, {"topic": topic, "partition": index}
        holders = self._holders(topic, index)
        answers = await self._ask_all(question, holders - {here})
        if here not in holders:
            return answers
        try:
            return DamageAnswers([*self._answer(question), *answers.ranges], answers.unanswered)
        except OSError as error:
            return DamageAnswers(
                answers.ranges, [_no_response(here, _not_written(error)), *answers.unanswered]
            )

    def _holders(self, topic: str, index: int) -> set[int]:
        """The nodes with a copy of a partition, alive or not."""
        partition = self._cluster.partition(topic, index)
        placement = self._cluster.image.placement
        if self._peering is None or partition is None:
            return {self._nodes.node_id}
        return set(placement.get(partition.group.group_id, ())) or set(self._nodes.registered_ids())

    async def _ask_all(self, question: Document, node_ids: Iterable[int]) -> DamageAnswers:
        answers = await asyncio.gather(*(self._ask(each, question) for each in sorted(node_ids)))
        return DamageAnswers(
            [document for each in answers for document in each.ranges],
            [document for each in answers for document in each.unanswered],
        )

    async def _ask(self, node_id: int, question: Document) -> DamageAnswers:
        assert self._peering is not None
        try:
            answer = await self._peering.network.request(
                node_id, RequestKind.DAMAGE, json.dumps(question).encode(), ANSWER_SECONDS
            )
        except TimeoutError:
            return DamageAnswers([], [_no_response(node_id, f"no answer within {ANSWER_SECONDS:g} s")])
        except (PeerError, PeerUnreachable) as error:
            return DamageAnswers([], [_no_response(node_id, str(error))])
        return DamageAnswers(json.loads(answer), [])

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
            raise PeerError(_not_written(error)) from error


def _no_response(node_id: int, reason: str) -> Document:
    return {"node": node_id, "reason": reason}


def _not_written(error: OSError) -> str:
    return f"the file of damaged ranges cannot be written: {error}"
