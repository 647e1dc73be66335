"""The damaged offset ranges of all nodes: each node reports its own ranges, and skips them on request.

Invariants: a node that does not respond within `RESPONSE_TIMEOUT_SECONDS` is named; unless an operator forces
it, nothing is skipped that another node has, or may have. Does not: know which ranges are damaged
(`broker/maintenance/damage.py`), or which nodes have intact ones (`damaged_copies.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.broker.controller.damaged_copies import copies_of
from lockstep.broker.maintenance.damage import (
    Document,
    damage_text,
    node_damage,
    remedy_text,
    skip_damage,
)
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.peers.peer_rpc import PeerRpc, RequestKind
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.group_options import node_of
from lockstep.storage.peers.limits import PeerError, PeerUnreachable

if TYPE_CHECKING:
    from lockstep.broker.peers.node_registry import NodeRegistry

RESPONSE_TIMEOUT_SECONDS: Final = 1.0


class DamageResponses(NamedTuple):
    """Ranges by node, and of each node without a response its id (`node`) and the `reason` in words."""

    ranges: list[Document]
    without_response: list[Document]


class DamageReports:
    """Reports of this node and its peers. Args: peer_rpc: None for a cluster of one node."""

    def __init__(self, cluster: MetadataCache, nodes: NodeRegistry, peer_rpc: PeerRpc | None) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._peer_rpc = peer_rpc
        if peer_rpc is not None:
            peer_rpc.handlers[RequestKind.DAMAGE] = self._serve

    async def all_damage(self, only: tuple[str, int] | None = None) -> DamageResponses:
        """Returns the damaged ranges of all live nodes, by node, each with the other nodes that have
        (`intact_on`) or may have (`unknown_on`) its records. Args: only: as for `node_damage`."""
        here = self._nodes.node_id
        others = [] if self._peer_rpc is None else [each for each in self._nodes.alive() if each != here]
        command = {} if only is None else {"only": only}  # older versions report all ranges
        responses = await self._request_all(command, others)
        ranges = [*self._execute(command), *responses.ranges]
        responding = {here, *others} - {each["node"] for each in responses.without_response}
        reports = {node: [each for each in ranges if each["node"] == node] for node in responding}
        return DamageResponses(
            [
                {**each, **copies_of(each, self._replica_nodes(each["group"]), reports)._asdict()}
                for each in ranges
            ],
            responses.without_response,
        )

    async def skip_damage(self, topic: str, index: int, *, is_forced: bool) -> DamageResponses:
        """Makes reads skip a partition's damaged ranges on all nodes with a copy; returns the newly skipped
        ranges. Raises RequestError where another node has, or may have, an intact copy, unless forced."""
        if not is_forced:
            await self._check_copies(topic, index)
        here, command = self._nodes.node_id, {"topic": topic, "partition": index}
        partition = self._cluster.partition(topic, index)
        replica_nodes = {here} if partition is None else self._replica_nodes(partition.group.group_id)
        responses = await self._request_all(command, replica_nodes - {here})
        if here not in replica_nodes:
            return responses
        try:
            return DamageResponses([*self._execute(command), *responses.ranges], responses.without_response)
        except OSError as error:
            return DamageResponses(
                responses.ranges, [_no_response(here, _not_written(error)), *responses.without_response]
            )

    async def _check_copies(self, topic: str, index: int) -> None:
        for each in (await self.all_damage((topic, index))).ranges:
            is_same = (each["topic"], each["partition"]) == (topic, index)
            if is_same and not each["given_up"] and (each["intact_on"] or each["unknown_on"]):
                raise RequestError(
                    ErrorCode.INVALID_REQUEST,
                    f"nothing is skipped: node {each['node']}: {damage_text(each)}; {remedy_text(each)} "
                    "(--force skips them nevertheless)",
                )

    def _replica_nodes(self, group_id: int) -> set[int]:
        """Returns the nodes with a replica of a log group, alive or not."""
        if self._peer_rpc is None:
            return {self._nodes.node_id}
        placed = self._cluster.image.placement.get(group_id, ())
        group = self._cluster.groups.get(group_id)
        members = () if group is None or not placed else group.raft.configuration.voters
        return {*placed, *map(node_of, members)} or set(self._nodes.registered_ids())

    async def _request_all(self, command: Document, node_ids: Iterable[int]) -> DamageResponses:
        responses = await asyncio.gather(*(self._request(each, command) for each in sorted(node_ids)))
        return DamageResponses(
            [document for each in responses for document in each.ranges],
            [document for each in responses for document in each.without_response],
        )

    async def _request(self, node_id: int, command: Document) -> DamageResponses:
        assert self._peer_rpc is not None
        try:
            response = await self._peer_rpc.network.request(
                node_id, RequestKind.DAMAGE, json.dumps(command).encode(), RESPONSE_TIMEOUT_SECONDS
            )
        except TimeoutError:
            return DamageResponses(
                [], [_no_response(node_id, f"no response within {RESPONSE_TIMEOUT_SECONDS:g} s")]
            )
        except (PeerError, PeerUnreachable) as error:
            return DamageResponses([], [_no_response(node_id, str(error))])
        return DamageResponses(json.loads(response), [])

    def _execute(self, command: Document) -> list[Document]:
        topic = command.get("topic")
        if topic is None:
            only = command.get("only")
            found = node_damage(self._cluster, None if only is None else (str(only[0]), int(only[1])))
        else:
            found = skip_damage(self._cluster, str(topic), int(command["partition"]))
        return [{"node": self._nodes.node_id, **each} for each in found]

    async def _serve(self, node_id: int, body: bytes) -> bytes:
        try:
            return json.dumps(self._execute(json.loads(body))).encode()
        except OSError as error:
            raise PeerError(_not_written(error)) from error


def _no_response(node_id: int, reason: str) -> Document:
    return {"node": node_id, "reason": reason}


def _not_written(error: OSError) -> str:
    return f"the file of damaged ranges cannot be written: {error}"
