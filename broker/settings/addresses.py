"""Addresses in settings: where to listen, and where the nodes of a cluster reach each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lockstep.broker.settings.properties import ConfigError, UnusableFile

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})
"""Hosts to listen on that no client can connect to."""


@dataclass(frozen=True)
class Listener:
    """One address the broker listens on."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


_LISTENER = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_.-]+)://)?(?P<host>\[[0-9A-Fa-f:.%]*\]|[^:\[\]/]*):(?P<port>[0-9]{1,5})"
)


def parse_listener(text: str, key: str = "listeners") -> Listener:
    """`NAME://HOST:PORT` or `HOST:PORT`. Raises ConfigError."""
    parsed = _LISTENER.fullmatch(text.strip())
    if parsed is None:
        form = "not of the form HOST:PORT or PLAINTEXT://HOST:PORT"
        raise ConfigError(key, text, form + _without_host(text, "PLAINTEXT://"))
    if int(parsed["port"]) > 65535:
        raise ConfigError(key, text, f"there is no port {parsed['port']}")
    host = parsed["host"].strip("[]")
    if not is_host(host):
        raise ConfigError(key, text, "no host name: a part between its dots is empty or over 63 characters")
    return Listener((parsed["name"] or "PLAINTEXT").upper(), host, int(parsed["port"]))


def is_host(host: str) -> bool:
    """Returns whether the resolver takes this text: it raises UnicodeError, not OSError, for any other."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host


def parse_host_port(text: str, key: str) -> Listener:
    """`HOST:PORT` of a listener that speaks nothing of Kafka's. Raises ConfigError."""
    if _LISTENER.fullmatch(text.strip()) is None or "://" in text:
        raise ConfigError(key, text, "not of the form HOST:PORT" + _without_host(text, ""))
    return parse_listener(text, key)


def _without_host(text: str, scheme: str) -> str:
    """The end of the error text for a bare port: the form that was most likely meant."""
    port = text.strip()
    return f"; {scheme}:{port} is port {port} of all addresses of this machine" if port.isdecimal() else ""


_PEER = re.compile(r"(?P<node>[0-9]{1,9})@(?P<address>.+)")


@lru_cache
def parse_peers(texts: tuple[str, ...], node_id: int) -> Mapping[int, Listener]:
    """Replication listeners by node id from `ID@HOST:PORT`, or the one file named. Raises ConfigError."""
    key = "lockstep.peers"
    if len(texts) == 1 and "@" not in texts[0]:
        texts = _peers_in_file(texts[0])
    parsed: dict[int, Listener] = {}
    for text in texts:
        peer = _PEER.fullmatch(text)
        if peer is None:
            raise ConfigError(key, text, "not of the form ID@HOST:PORT, nor a file of such lines")
        number = int(peer["node"])
        address = parse_listener(peer["address"], key)
        if address.host in WILDCARD_HOSTS or not address.port:
            problem = "names no host and port that others could connect to"
            hint = "; where this node itself listens may be another address: lockstep.peers.listener"
            raise ConfigError(key, text, problem + (hint if number == node_id else ""))
        if number in parsed:
            raise ConfigError(key, text, f"node {number} is there twice")
        if any((each.host, each.port) == (address.host, address.port) for each in parsed.values()):
            raise ConfigError(key, text, "two nodes have this address")
        parsed[number] = address
    if parsed and node_id not in parsed:
        raise ConfigError(key, ",".join(texts), f"does not list this node (node.id={node_id})")
    if len(parsed) == 1:
        raise ConfigError(key, ",".join(texts), "names this node alone: leave it out for a node by itself")
    return parsed


def _peers_in_file(name: str) -> tuple[str, ...]:
    path = Path(name)
    try:
        if path.exists() and not path.is_file():  # to open a pipe could block
            raise ConfigError("lockstep.peers", name, "a pipe, device or directory, no regular file")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else "not a text file"
        is_temporary = isinstance(error, OSError) and "/" in name  # else it may be meant as an address
        raise (UnusableFile if is_temporary else ConfigError)(
            "lockstep.peers", name, f"not of the form ID@HOST:PORT, and no file to read: {problem.lower()}"
        ) from None
    without_comments = [line.partition("#")[0].strip() for line in lines]
    parsed = tuple(item.strip() for line in without_comments for item in line.split(",") if item.strip())
    if not parsed:
        raise ConfigError("lockstep.peers", name, "the file names no node")
    return parsed
