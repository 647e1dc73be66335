"""The nodes that elect the controller, and those of them that this node reaches."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.broker.membership.placement import Placement, initial
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.metadata_image import MetadataImage
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.peers.peer_rpc import PeerRpc
from lockstep.broker.peers.quorum_watch import QuorumReach
from lockstep.broker.settings.config import Settings


def founding_placement(settings: Settings) -> Placement:
    """The nodes of each log group of a new cluster."""
    return initial(sorted(settings.peers()), settings.data_groups, settings.lockstep_data_replicas)


class ControllerQuorum:
    """See the module. Args: settings: they name the voters of group 0 until these are recorded."""

    def __init__(
        self, settings: Settings, image: MetadataImage, nodes: NodeRegistry, peer_rpc: PeerRpc
    ) -> None:
        self._image = image
        self._nodes = nodes
        self._peer_rpc = peer_rpc
        self._founders = founding_placement(settings)[METADATA_GROUP]

    def reach(self) -> QuorumReach:
        """The voters of group 0 that this node reaches, as far as it knows them."""
        unreached = {each: self._peer_rpc.problem(each) for each in self._silent_voters()}
        return QuorumReach(self._voters(), unreached)

    def has_contacted_voters(self) -> bool:
        """Returns whether each voter has sent a status, or the connection to it has failed; just after a
        start neither is true."""
        return all(self._peer_rpc.network.problem(each) for each in self._silent_voters())

    def _voters(self) -> Sequence[int]:
        return self._image.placement.get(METADATA_GROUP) or self._founders

    def _silent_voters(self) -> list[int]:
        return [each for each in sorted(self._voters()) if not self._nodes.is_alive(each)]
