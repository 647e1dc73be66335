"""The settings of this node's id and of the other nodes of its cluster: a part of `config.Settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.broker.settings.addresses import Listener, parse_host_port, parse_peers
from lockstep.broker.settings.properties import Kind, setting

PEERS_LISTENER: Final = "PEERS"
"""The name of the replication listener in settings: listener.name.peers.ssl.keystore.location."""
PEER_TLS_DISABLED: Final = "disabled"
PEER_TLS_ALLOW: Final = "allow"
PEER_TLS_PREFER: Final = "prefer"
PEER_TLS_REQUIRE: Final = "require"


@dataclass(frozen=True)
class PeerSettings:
    """This node among its peers."""

    node_id: int = setting(
        "node.id", Kind.INT, 1, "The number of this node in its cluster.", minimum=0, unit="node id"
    )
    lockstep_peers: tuple[str, ...] = setting(
        "lockstep.peers",
        Kind.LIST,
        (),
        "Every node of the cluster as ID@HOST:PORT of its replication listener, this node included; "
        "or a file with one node a line. Empty: this node is alone.",
    )
    lockstep_peers_listener: str = setting(
        "lockstep.peers.listener",
        Kind.STRING,
        "",
        "HOST:PORT where this node listens for the others. Empty: its own address in lockstep.peers, "
        "to which they connect.",
    )

    lockstep_peers_tls: str = setting(
        "lockstep.peers.tls",
        Kind.STRING,
        PEER_TLS_DISABLED,
        "Mutual TLS between nodes, by ssl.keystore and ssl.truststore or those of listener.name.peers. "
        "require: no node without a certificate of this cluster is served or dialed. A cluster that runs "
        "gets there by allow (both are accepted, nodes dial without TLS) and prefer (they dial with it).",
        choices=(PEER_TLS_DISABLED, PEER_TLS_ALLOW, PEER_TLS_PREFER, PEER_TLS_REQUIRE),
    )

    @property
    def uses_peer_tls(self) -> bool:
        """True if nodes reach each other with certificates, or may."""
        return bool(self.lockstep_peers) and self.lockstep_peers_tls != PEER_TLS_DISABLED

    def peers(self) -> Mapping[int, Listener]:
        """Replication listeners of all nodes by node id; empty for a node alone. Raises ConfigError."""
        return parse_peers(self.lockstep_peers, self.node_id)

    def peer_listener(self) -> Listener | None:
        """The listener for other nodes; None for a single node. Raises ConfigError."""
        text, own = self.lockstep_peers_listener, self.peers().get(self.node_id)
        if own is None or not text:
            return own
        return parse_host_port(text, "lockstep.peers.listener")
