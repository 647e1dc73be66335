"""The transfer of a log group's leadership: its leader is requested to hand it to a node."""

from __future__ import annotations

import json
from typing import Final

from lockstep.broker.peers.peer_rpc import PeerRpc, RequestKind
from lockstep.storage.peers.limits import PeerError

LEADER_SECONDS: Final = 5.0
"""The leader is searched for so long."""


class LeadershipTransfers:
    """See the module. Args: peering: None for a cluster of one node."""

    def __init__(self, peering: PeerRpc | None) -> None:
        self._peering = peering

    async def begin(self, group_id: int, node_id: int) -> None:
        """Have the leader begin the transfer to a node. Raises PeerError where it rejects, NotLeader."""
        if self._peering is None:
            raise PeerError("this node is alone")
        body = json.dumps({"group": group_id, "to": node_id}).encode()
        await self._peering.request_from_leader(group_id, RequestKind.TRANSFER, body, LEADER_SECONDS)
