"""Forwards requests that only the controller, the leader of group 0, can serve.

Owns: whether this node is the controller, the forwarding of clients' requests as they arrived, and the
creation of topics that requests on this node need. Invariant: a client whose request was forwarded sees the
effect on this node, too: the response waits until this node has applied it, or for APPLY_TIMEOUT_SECONDS.
Does not: decide anything about topics (`broker/controller/topics.py` does).
Source: KIP-590 for forwarding; here a request is forwarded whole, and its response has the client's version.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from struct import Struct as Binary
from typing import Final, NamedTuple

from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache, Topic
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.requests.request_context import (
    ClientContext,
    EncodedResponse,
    HandlerResponse,
    await_response,
)
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
"""The time that a response waits for this node to apply the controller's change."""
CREATE_VERSION: Final = 7
_HEAD_LENGTH: Final = Binary(">I")
_APPLIED: Final = Binary(">Q")


class _ForwardedHead(NamedTuple):
    """The request header and client of a forwarded request, a JSON array in front of its body."""

    api_key: int
    api_version: int
    client_id: str | None
    listener: str
    peer: str
    principal: str | None = None
    """None for the anonymous one, which is not sent: nodes of earlier versions know no principal."""
    token_authenticated: bool = False
    """Sent where it is true only: nodes of earlier versions know no delegation tokens."""

    def encode(self) -> bytes:
        """The head with its length in front."""
        count = len(self) if self.token_authenticated else len(self) - 1
        if self.principal is None:
            count = len(self) - 2
        encoded = json.dumps(self[:count]).encode()
        return _HEAD_LENGTH.pack(len(encoded)) + encoded

    @classmethod
    def decode(cls, request: bytes) -> tuple[_ForwardedHead, int]:
        """The head of a forwarded request, and the position of the body behind it."""
        (length,) = _HEAD_LENGTH.unpack_from(request)
        body_at = _HEAD_LENGTH.size + length
        return cls(*json.loads(request[_HEAD_LENGTH.size : body_at])), body_at


class ControllerForwarder:
    """Forwards requests of this node's clients. Args: peer_rpc: None for a node alone, the controller."""

    def __init__(self, cluster: MetadataCache, topics: Topics, peer_rpc: PeerRpc | None) -> None:
        self._cluster = cluster
        self._topics = topics
        self._peer_rpc = peer_rpc
        self._pending_creations: dict[str, asyncio.Task[Topic]] = {}

    @property
    def is_local_controller(self) -> bool:
        """True where this node is the controller."""
        if self._peer_rpc is None:
            return True
        return self._topics.leads

    # --- topics ---------------------------------------------------------------------------------------------

    async def ensure_topic(self, name: str) -> Topic:
        """Returns the topic of this name, created with the brokers' defaults where there is none. Raises
        RequestError."""
        topic = self._cluster.topic(name)
        if topic is not None:
            return topic
        if self.is_local_controller:
            return await self._topics.ensure_topic(name)
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

    async def forward(
        self,
        client: ClientContext,
        header: RequestHeader,
        body: bytes,
        handle_locally: Callable[[], HandlerResponse],
    ) -> object:
        """Forwards a request to the controller.

        Args: handle_locally: called where no controller is found; it rejects the request with the error of
        its API.
        """
        try:
            return EncodedResponse([await self._forward_to_controller(header, client, body)])
        except (NotLeader, PeerError):
            return await await_response(handle_locally())

    async def _forward_to_controller(
        self, header: RequestHeader, client: ClientContext, body: bytes
    ) -> bytes:
        assert self._peer_rpc is not None
        principal = str(client.principal) if client.principal != ANONYMOUS else None
        head = _ForwardedHead(
            header.api_key,
            header.api_version,
            header.client_id,
            client.listener,
            client.peer,
            principal,
            client.principal.token_authenticated,
        )
        request = head.encode() + body
        response = await self._peer_rpc.request_from_leader(
            METADATA_GROUP, RequestKind.FORWARD, request, CONTROLLER_TIMEOUT_SECONDS, RESPONSE_TIMEOUT_SECONDS
        )
        (applied,) = _APPLIED.unpack_from(response)
        await self._wait_until_applied(applied)
        return response[_APPLIED.size :]

    async def _wait_until_applied(self, applied: int) -> None:
        """Waits until this node has applied group 0 up to this index, for APPLY_TIMEOUT_SECONDS at most.
        After the timeout the client may not see the effect here yet, and no error or log line reports it."""
        deadline = asyncio.get_running_loop().time() + APPLY_TIMEOUT_SECONDS
        group = self._cluster.groups.get(METADATA_GROUP)
        while group is not None and group.applied_index < applied:
            if asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(0.002)


class ForwardedRequests:
    """Serves the requests that other nodes forward to this one, the controller."""

    def __init__(
        self, cluster: MetadataCache, forwarder: ControllerForwarder, router: Router, peer_rpc: PeerRpc
    ) -> None:
        self._cluster = cluster
        self._forwarder = forwarder
        self._router = router
        peer_rpc.handlers[RequestKind.FORWARD] = self._serve

    async def _serve(self, node_id: int, request: bytes) -> bytes:
        """Handles a request of another node's client."""
        if not self._forwarder.is_local_controller:
            raise NotLeaderHere("not the controller")
        head, body_at = _ForwardedHead.decode(request)
        header = RequestHeader(head.api_key, head.api_version, 0, head.client_id)
        principal = ANONYMOUS
        if head.principal is not None:
            parsed = KafkaPrincipal.parse(head.principal)
            principal = replace(parsed, token_authenticated=bool(head.token_authenticated))
        context = ClientContext(head.listener, head.peer, "", principal)
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
