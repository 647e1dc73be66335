"""The nodes of the cluster as one client can reach them: by the listener of its connection."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.metadata_image import Address
from lockstep.broker.metadata.node_view import NodeAddresses
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.request_context import ClientContext


class NodeEndpoints:
    """See the module.

    Args: advertised: this node's host ("" for the address that the client itself connected to) and port, by
    listener name.
    """

    __slots__ = ("_advertised", "_cluster", "_nodes")

    def __init__(
        self, nodes: NodeAddresses, advertised: Mapping[str, Address], cluster: MetadataCache
    ) -> None:
        self._nodes = nodes
        self._advertised = advertised
        self._cluster = cluster

    def own(self, client: ClientContext) -> Endpoint:
        """This node."""
        advertised = self._advertised
        host, port = advertised.get(client.listener) or next(iter(advertised.values()))
        settings = self._cluster.settings
        return Endpoint(settings.node_id, host or client.local_host, port, settings.broker_rack)

    def all(self, client: ClientContext) -> list[Endpoint]:
        """Returns the nodes that clients see."""
        return self._nodes.endpoints(client.listener, self.own(client))

    def of(self, node_id: int, client: ClientContext) -> Endpoint | None:
        """One node; None where this client cannot reach it, or for no node."""
        return self._nodes.endpoint(node_id, client.listener, self.own(client))
