"""An operator's requests to the leaders of log groups to transfer their leadership to another node.

Used by ElectLeaders and `lockstep cluster`. Does not: transfer (Raft does, `storage/raft`), or begin the
transfers that restore the preferred leaders (`broker/membership/reconciler.py` does).
"""

from __future__ import annotations

import json
from typing import Final

from lockstep.broker.peers.peer_rpc import PeerRpc, RequestKind
from lockstep.storage.peers.limits import PeerError

LEADER_SECONDS: Final = 5.0
"""The time to find the leader."""


class TransferRequests:
    """Sends the requests. Args: peer_rpc: None for a cluster of one node."""

    def __init__(self, peer_rpc: PeerRpc | None) -> None:
        self._peer_rpc = peer_rpc

    async def begin(self, group_id: int, node_id: int) -> None:
        """Requests the leader to begin the transfer to a node. Raises PeerError where the leader rejects it,
        NotLeader where no leader is found."""
        if self._peer_rpc is None:
            raise PeerError("this node is alone")
        body = json.dumps({"group": group_id, "to": node_id}).encode()
        await self._peer_rpc.request_from_leader(group_id, RequestKind.TRANSFER, body, LEADER_SECONDS)
