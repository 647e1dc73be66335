"""Forwards requests that only the controller, the leader of group 0, can serve.

Owns: whether this node is the controller, the forwarding of clients' requests as they arrived, and the
creation of topics that requests here need. Invariant: a client whose request was forwarded sees the effect on
this node, too: the response waits until this node has applied it, or a timeout. Does not: decide anything
about topics (`broker/controller/topics.py` does).
Source: KIP-590 for forwarding; here a request is forwarded whole, and its response has the client's version.
"""

from __future__ import annotations

import asyncio
import json
from struct import Struct as Binary
from typing import Any, Final

from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache, Topic
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.requests.request_context import ClientContext, EncodedResponse, await_response
from lockstep.broker.requests.router import Router
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.compiler import decode, encode
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import NotLeader

CONTROLLER_TIMEOUT_SECONDS: Final = 5.0
"""The time to find the controller."""
RESPONSE_TIMEOUT_SECONDS: Final = 60.0
"""The timeout of the controller's response: ten thousand partitions take a while."""
APPLY_TIMEOUT_SECONDS: Final = 1.0
"""The time in which this node should apply the controller's change."""
CREATE_VERSION: Final = 7
_HEAD: Final = Binary(">I")
_APPLIED: Final = Binary(">Q")


class Controller:
    """See the module. Args: peering: None for a node alone, which is the controller."""

    def __init__(self, cluster: MetadataCache, topics: Topics, peering: PeerRpc | None) -> None:
        self._cluster = cluster
        self._topics = topics
        self._peering = peering
        self._pending_creations: dict[str, asyncio.Task[Topic]] = {}

    @property
    def is_here(self) -> bool:
        """True where this node is the controller."""
        if self._peering is None:
            return True
        return self._topics.leads

    # --- topics ---------------------------------------------------------------------------------------------

    async def ensure(self, name: str) -> Topic:
        """Returns the topic of this name, created with the brokers' defaults if need be. Raises
        RequestError."""
        topic = self._cluster.topic(name)
        if topic is not None:
            return topic
        if self.is_here:
            return await self._topics.ensure(name)
        creation = self._pending_creations.get(name)
        if creation is None:
            creation = self._pending_creations[name] = asyncio.ensure_future(self._create_at_controller(name))
            creation.add_done_callback(lambda done: self._on_topic_created(name, done))
        return await asyncio.shield(creation)

    def _on_topic_created(self, name: str, done: asyncio.Task[Topic]) -> None:
        del self._pending_creations[name]
        if not done.cancelled():
            done.exception()  # retrieved here, as no caller may wait for it any more

    async def _create_at_controller(self, name: str) -> Topic:
        creatable_topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        request = CreateTopicsRequest(
            topics=[creatable_topic], timeout_ms=int(CONTROLLER_TIMEOUT_SECONDS * 1000)
        )
        body = b"".join(bytes(each) for each in encode(request, CREATE_VERSION))
        try:
            response = await self._forward_to_controller(
                RequestHeader(ApiKey.CREATE_TOPICS, CREATE_VERSION, 0, None), ClientContext("", "", ""), body
            )
        except (NotLeader, PeerError) as error:
            raise RequestError(ErrorCode.NOT_CONTROLLER, str(error)) from None
        result = decode(CreateTopicsResponse, CREATE_VERSION, memoryview(response), 0).topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RequestError(ErrorCode(result.error_code), result.error_message or "")
        topic = self._cluster.topic(name)
        if topic is None:
            raise RequestError(ErrorCode.NOT_CONTROLLER, f"Topic '{name}' is not known here yet.")
        return topic

    # --- forwarding -----------------------------------------------------------------------------------------

    async def forward(self, context: ClientContext, header: RequestHeader, body: bytes, local: Any) -> object:
        """Forwards a request to the controller; without a controller `local` handles it here and rejects it
        with the error of its API."""
        try:
            return EncodedResponse([await self._forward_to_controller(header, context, body)])
        except (NotLeader, PeerError):
            return await await_response(local())

    async def _forward_to_controller(
        self, header: RequestHeader, client: ClientContext, body: bytes
    ) -> bytes:
        assert self._peering is not None
        head = [header.api_key, header.api_version, header.client_id, client.listener, client.peer]
        if client.principal != ANONYMOUS:  # nodes of earlier versions know no principal
            head.append(str(client.principal))
        encoded_head = json.dumps(head).encode()
        request = _HEAD.pack(len(encoded_head)) + encoded_head + body
        response = await self._peering.request_from_leader(
            METADATA_GROUP, RequestKind.FORWARD, request, CONTROLLER_TIMEOUT_SECONDS, RESPONSE_TIMEOUT_SECONDS
        )
        (applied,) = _APPLIED.unpack_from(response)
        await self._wait_until_applied(applied)
        return response[_APPLIED.size :]

    async def _wait_until_applied(self, applied: int) -> None:
        """Waits until this node has applied group 0 up to this index."""
        deadline = asyncio.get_running_loop().time() + APPLY_TIMEOUT_SECONDS
        group = self._cluster.groups.get(METADATA_GROUP)
        while group is not None and group.applied_index < applied:
            if asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(0.002)


class ForwardedRequests:
    """Serves the requests that other nodes forward to this one, the controller."""

    def __init__(
        self, cluster: MetadataCache, controller: Controller, router: Router, peering: PeerRpc
    ) -> None:
        self._cluster = cluster
        self._controller = controller
        self._router = router
        peering.handlers[RequestKind.FORWARD] = self._serve

    async def _serve(self, node_id: int, request: bytes) -> bytes:
        """Handles a request of another node's client."""
        if not self._controller.is_here:
            raise NotLeaderHere("not the controller")
        (size,) = _HEAD.unpack_from(request)
        body_at = _HEAD.size + size
        head: list[Any] = json.loads(request[_HEAD.size : body_at])
        api_key, api_version, client_id, listener, peer, *principals = head
        header = RequestHeader(api_key, api_version, 0, client_id)
        context = ClientContext(listener, peer, "", *map(KafkaPrincipal.parse, principals))
        context.is_forwarded = True
        view = memoryview(request)[body_at:]
        response = await await_response(self._router.route(context, header, view, 0))
        if isinstance(response, EncodedResponse):
            encoded = response.body
        else:
            assert response is not None
            encoded = encode(response, header.api_version)
        applied = self._cluster.groups[METADATA_GROUP].applied_index
        return b"".join([_APPLIED.pack(applied), *map(bytes, encoded)])
