"""The settings of each node of `lockstep serve --processes N`, from those of the command. Pure.

Node K listens for clients and for metrics K-1 ports above the first node, for the other nodes on localhost
only, with a certificate of its own. Does not: read settings, look whether a port is free, make certificates
(`node_certificates`), or start anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from lockstep.broker.settings.addresses import Listener
from lockstep.broker.settings.config import PLAINTEXT, Settings
from lockstep.broker.settings.peer_settings import PEER_TLS_DISABLED, PEER_TLS_REQUIRE, PEERS_LISTENER
from lockstep.broker.settings.security_settings import listener_prefix

MAX_PROCESSES: Final = 64
"""LIMIT. As many log groups as a cluster may have: a further node would lead none."""
PEER_PORT_OFFSET: Final = 20_000
"""The distance of the ports between nodes from those for clients, where there are so many ports."""
NEAR_PEER_PORT_OFFSET: Final = 100
"""The distance otherwise."""
HIGH_PORT: Final = 65_000
MAX_PORT: Final = 65_535
OWN_SETTINGS: Final = ("node.id", "broker.id", "lockstep.peers", "lockstep.peers.listener")
"""Settings that name one node of a cluster: the command gives them to each itself."""
PEER_TLS: Final = "lockstep.peers.tls"
CA_FILE: Final = "ca.pem"
_PEER_PREFIX: Final = listener_prefix(PEERS_LISTENER)
_OF_ALL_LISTENERS: Final = (
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
)
"""Settings of clients' keys that do not fit those of nodes."""


class PlanError(ValueError):
    """The settings do not fit several processes; the text is for operators."""


@dataclass(frozen=True)
class NodePlan:
    """One node."""

    node_id: int
    directory: str
    listener: Listener
    """Where the command and its tools reach the node: the first plaintext listener for clients."""
    listeners: tuple[Listener, ...]
    """All listeners for clients."""
    peer_listener: Listener
    metrics_listener: Listener | None
    settings: Mapping[str, str]
    """What the node is given beside the settings of the command, by property name."""

    @property
    def has_certificate(self) -> bool:
        """True if the nodes reach each other with certificates that the command makes."""
        return PEER_TLS in self.settings


def node_directory(data_directory: str, node_id: int) -> str:
    """The data directory of a node."""
    return f"{data_directory.rstrip('/') or '/'}/node-{node_id}"


def certificate_directory(data_directory: str) -> str:
    """The directory of the nodes' certificates."""
    return f"{data_directory.rstrip('/') or '/'}/certificates"


def certificate_file(data_directory: str, node_id: int) -> str:
    """The file with key and certificate of a node."""
    return f"{certificate_directory(data_directory)}/node-{node_id}.pem"


def peer_port(client_port: int) -> int:
    """The first node's port for the other nodes, from its port for clients."""
    above = client_port + PEER_PORT_OFFSET
    return above if above < HIGH_PORT else client_port + NEAR_PEER_PORT_OFFSET


def provisional_peers(processes: int) -> str:
    """A value of lockstep.peers by which settings are checked as those of a cluster of this size."""
    return ",".join(f"{node_id}@localhost:{node_id}" for node_id in range(1, processes + 1))


def check_processes(processes: int) -> None:
    """Raises PlanError for a number of processes outside the limits."""
    if not 2 <= processes <= MAX_PROCESSES:
        raise PlanError(f"--processes {processes}: the number of processes is 1 to {MAX_PROCESSES}")


def plan_nodes(settings: Settings, processes: int, given: Collection[str]) -> list[NodePlan]:
    """The nodes in order.

    Args:
        settings: the command's.
        given: the names of the settings that were given, apart from defaults.
    Raises PlanError.
    """
    check_processes(processes)
    for name in OWN_SETTINGS:
        if name in given:
            raise PlanError(
                f"{name} names one node, and --processes {processes} runs {processes}: leave it out"
            )
    _check_peer_tls(settings, processes, given)
    listeners, last = settings.client_listeners(), processes - 1
    if not all(each.port for each in listeners):
        raise PlanError("--processes takes no port 0: node 1 listens on the port given, the others above it")
    plaintext = [each for each in listeners if settings.protocol_of(each) == PLAINTEXT]
    if not plaintext:
        raise PlanError(
            "--processes needs a PLAINTEXT listener, by which it sees whether nodes serve: add one that this "
            "machine alone reaches, listeners=PLAINTEXT://localhost:9092,..."
        )
    peers = Listener("PEERS", "localhost", peer_port(plaintext[0].port))
    metrics = settings.metrics_listener()
    of_clients = (("clients", each) for each in listeners)
    for what, listener in (*of_clients, ("nodes", peers), ("metrics", metrics)):
        if listener is not None and listener.port + last > MAX_PORT:
            raise PlanError(
                f"--processes {processes}: no {processes} ports for {what} from {listener.port} on"
            )
    peer_list = ",".join(
        f"{node_id}@localhost:{peers.port + node_id - 1}" for node_id in range(1, processes + 1)
    )
    return [
        _plan_node(node_id, settings, plaintext[0], peers, peer_list, given)
        for node_id in range(1, processes + 1)
    ]


def _check_peer_tls(settings: Settings, processes: int, given: Collection[str]) -> None:
    """Raises PlanError."""
    if settings.lockstep_peers_tls not in (PEER_TLS_DISABLED, PEER_TLS_REQUIRE):
        raise PlanError(
            f"{PEER_TLS}={settings.lockstep_peers_tls}: the nodes of --processes {processes} start together, "
            f"so it is {PEER_TLS_REQUIRE}, which is the default here, or {PEER_TLS_DISABLED}"
        )
    for name in given:
        if name.lower().startswith(f"{_PEER_PREFIX}ssl."):
            raise PlanError(
                f"{name}: --processes {processes} makes the certificates of its nodes itself: leave it out"
            )


def _peer_tls(settings: Settings, node_id: int, given: Collection[str]) -> dict[str, str]:
    """The settings of a node's own certificate; none where they are turned off."""
    if PEER_TLS in given and settings.lockstep_peers_tls == PEER_TLS_DISABLED:
        return {}
    own = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificate_file(settings.log_dirs, node_id),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{certificate_directory(settings.log_dirs)}/{CA_FILE}",
        **{name: "" for name in _OF_ALL_LISTENERS if name in given},
    }
    return {PEER_TLS: PEER_TLS_REQUIRE, **{_PEER_PREFIX + name: text for name, text in own.items()}}


def _plan_node(
    node_id: int,
    settings: Settings,
    first: Listener,
    peers: Listener,
    peer_list: str,
    given: Collection[str],
) -> NodePlan:
    above, own_metrics = node_id - 1, metrics_listener(settings, node_id)
    listeners = tuple(_shift_port(each, above) for each in settings.client_listeners())
    directory = node_directory(settings.log_dirs, node_id)
    own = {
        "node.id": str(node_id),
        "lockstep.peers": peer_list,
        "log.dirs": directory,
        "listeners": ",".join(map(str, listeners)),
    }
    own |= _peer_tls(settings, node_id, given)
    if "lockstep.data.replicas" not in given:
        own["lockstep.data.replicas"] = "1"
    if own_metrics is not None:
        own["lockstep.metrics.listener"] = str(own_metrics).partition("://")[2]
    if settings.advertised_listeners:
        advertised = settings.advertised_by_name().values()
        own["advertised.listeners"] = ",".join(str(_shift_port(each, above)) for each in advertised)
    return NodePlan(
        node_id, directory, _shift_port(first, above), listeners, _shift_port(peers, above), own_metrics, own
    )


def metrics_listener(settings: Settings, node_id: int) -> Listener | None:
    """A node's own listener for metrics, by settings that all nodes share; None without one."""
    shared = settings.metrics_listener()
    return None if shared is None else _shift_port(shared, node_id - 1)


def _shift_port(listener: Listener, ports: int) -> Listener:
    """The listener some ports above; port 0 stays."""
    return replace(listener, port=listener.port + ports if listener.port else 0)
