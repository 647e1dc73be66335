"""All that this node listens on, each with the setting it is from, and how a person chooses another one.

Does not: bind anything (`listening.py`).
"""

from __future__ import annotations

from typing import Final

from broker.connections.listening import host_and_port
from broker.settings.addresses import Listener
from broker.settings.config import Settings

ANOTHER_METRICS_PORT: Final = "lockstep.metrics.listener=HOST:PORT"
ANOTHER_PEER_PORT: Final = "in lockstep.peers (--peers), the same on every node"
ANOTHER_PEER_LISTENER: Final = "lockstep.peers.listener=HOST:PORT"
PEERS_ELSEWHERE: Final = (
    f"If the others reach this node by an address that is not its own, say where it listens: "
    f"{ANOTHER_PEER_LISTENER}"
)


def own_listeners(settings: Settings) -> list[tuple[str, Listener]]:
    """Each setting and its listener. Raises ConfigError."""
    found = [(f"listeners={listener} (--listen)", listener) for listener in settings.listening()]
    if (peers := settings.peer_listener()) is not None:
        address = host_and_port(peers.host, peers.port)
        own = f"lockstep.peers={settings.node_id}@{address} (--peers)"
        elsewhere = f"lockstep.peers.listener={address}"
        found.append((elsewhere if settings.lockstep_peers_listener else own, peers))
    if (metrics := settings.metrics_listener()) is not None:
        found.append((f"lockstep.metrics.listener={host_and_port(metrics.host, metrics.port)}", metrics))
    return found


def peer_hints(settings: Settings) -> tuple[str, str]:
    """How another port for peers is chosen, and what to do where the address is not this machine's."""
    if settings.lockstep_peers_listener:
        return ANOTHER_PEER_LISTENER, ""
    return ANOTHER_PEER_PORT, PEERS_ELSEWHERE
