"""The addresses that this node listens on, each with its setting and how an operator chooses another one.

Does not: bind anything (`listeners.py`).
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.network.listeners import host_and_port
from lockstep.broker.settings.addresses import Listener
from lockstep.broker.settings.config import Settings

METRICS_PORT_HINT: Final = "lockstep.metrics.listener=HOST:PORT"
PEER_PORT_HINT: Final = "in lockstep.peers (--peers), the same on every node"
PEER_LISTENER_HINT: Final = "lockstep.peers.listener=HOST:PORT"
PEER_ADDRESS_HINT: Final = (
    f"If the others reach this node by an address that is not its own, name its address: {PEER_LISTENER_HINT}"
)


def own_listeners(settings: Settings) -> list[tuple[str, Listener]]:
    """Each setting and its listener. Raises ConfigError."""
    listeners = [(f"listeners={listener} (--listen)", listener) for listener in settings.client_listeners()]
    if (peers := settings.peer_listener()) is not None:
        address = host_and_port(peers.host, peers.port)
        from_peers = f"lockstep.peers={settings.node_id}@{address} (--peers)"
        from_listener = f"lockstep.peers.listener={address}"
        listeners.append((from_listener if settings.lockstep_peers_listener else from_peers, peers))
    if (metrics := settings.metrics_listener()) is not None:
        listeners.append((f"lockstep.metrics.listener={host_and_port(metrics.host, metrics.port)}", metrics))
    return listeners


def peer_hints(settings: Settings) -> tuple[str, str]:
    """The hints for another peer port, and for an address that is not this machine's."""
    if settings.lockstep_peers_listener:
        return PEER_LISTENER_HINT, ""
    return PEER_PORT_HINT, PEER_ADDRESS_HINT
