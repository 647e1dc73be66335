"""The nodes of the cluster as this package reads them; `broker/peers/node_registry.py` implements them.

Protocols alone: the registry is in a package above this one, since it reads the metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lockstep.broker.metadata.metadata_image import NodeEntry
from lockstep.broker.requests.endpoint import Endpoint


class NodeAddresses(Protocol):
    """The addresses of nodes for clients."""

    def endpoints(self, listener: str, here: Endpoint) -> list[Endpoint]:
        """The nodes' endpoints for clients of this listener; `here` is this node's."""

    def endpoint(self, node_id: int, listener: str, here: Endpoint) -> Endpoint | None:
        """A node's endpoint for clients of this listener; None where it has no such listener."""


class NodeStates(Protocol):
    """The nodes that are alive, what they lead, and how far they have replayed group 0."""

    def is_alive(self, node_id: int) -> bool:
        """True if a status of the node came lately."""

    def entry_of(self, node_id: int) -> NodeEntry | None:
        """A node as it is recorded."""

    def leader_of(self, group: int) -> tuple[int, int]:
        """The leader of a log group, (node id or -1, term)."""

    def live_leader_of(self, group: int) -> int:
        """The live leader of a log group; -1 for none."""

    def out_of_sync(self, group: int) -> tuple[int, ...]:
        """The nodes that are out of sync in a log group."""

    def has_followed(self, node_id: int, metadata_index: int) -> bool:
        """True if a node is known to have applied group 0 up to this index."""


class NodeView(NodeStates, Protocol):
    """All that the handlers of this package read."""

    on_notification: dict[Callable[[], None], None]
    """Called after each status of another node."""

    @property
    def node_id(self) -> int:
        """This node."""

    @property
    def has_replayed_metadata(self) -> bool:
        """True once this node has followed the metadata at least as far as at its last stop."""

    def client_view(self) -> tuple[object, ...]:
        """Equal for two moments at which clients see the same nodes and leaders."""

    def registered_ids(self) -> list[int]:
        """Every node of the cluster, alive or not."""
