"""broker/controller/forwarder.py: what the controller learns of a client with a forwarded request."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from lockstep.broker.controller.forwarder import ControllerForwarder, ForwardedRequests, _ForwardedHead
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.requests.request_context import ClientContext, EncodedResponse
from lockstep.protocol.api import ApiKey, RequestHeader
from tests.support.cases import each_case


class _Loopback:
    """A peer_rpc whose only other node is this one, the controller."""

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[[int, bytes], Awaitable[bytes]]] = {}

    async def request_from_leader(self, group: int, kind: int, request: bytes, *timeouts: float) -> bytes:
        return await self.handlers[kind](2, request)


@each_case("principal", [ANONYMOUS, KafkaPrincipal("User", "CN=a:b"), KafkaPrincipal("User", "a", True)])
async def test_the_controller_gets_the_clients_identity(principal: KafkaPrincipal) -> None:
    seen: list[ClientContext] = []

    def route(context: ClientContext, *_: object) -> EncodedResponse:
        seen.append(context)
        return EncodedResponse([b"response"])

    group = SimpleNamespace(applied_index=7)
    cluster, peer_rpc = SimpleNamespace(groups={METADATA_GROUP: group}), _Loopback()
    topics = SimpleNamespace(leads=True)
    forwarder = ControllerForwarder(cast(Any, cluster), cast(Any, topics), cast(Any, peer_rpc))
    ForwardedRequests(
        cast(Any, cluster), forwarder, cast(Any, SimpleNamespace(route=route)), cast(Any, peer_rpc)
    )
    client = ClientContext("SASL", "10.1.2.3:999", "10.1.2.4", principal)
    header = RequestHeader(ApiKey.CREATE_ACLS, 3, 1, "a client")
    response = await forwarder.forward(client, header, b"body", lambda: None)
    assert isinstance(response, EncodedResponse) and response.body == [b"response"]
    (context,) = seen
    assert (context.is_forwarded, context.listener, context.host) == (True, "SASL", "10.1.2.3")
    assert context.principal == principal
    assert context.principal.token_authenticated == principal.token_authenticated


@each_case(
    ("principal", "token_authenticated", "sent"),
    [(None, False, 5), (None, True, 5), ("User:a", False, 6), ("User:a", True, 7)],
)
def test_earlier_versions_can_read_what_they_can_serve(
    principal: str | None, token_authenticated: bool, sent: int
) -> None:
    head = _ForwardedHead(30, 3, "a client", "SASL", "10.1.2.3:999", principal, token_authenticated)
    encoded = head.encode()
    assert len(json.loads(encoded[4:])) == sent
    assert _ForwardedHead.decode(encoded + b"body")[0][:sent] == head[:sent]
