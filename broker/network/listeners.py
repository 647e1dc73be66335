"""Listening sockets: bound before recovery, opened to clients after it; and the limit of client connections.

Owns: turning a listener's host and port into bound sockets, and the errors for a port that is in use, or
configured twice. A host that has several addresses (localhost: IPv4 and IPv6) gets one socket each, all on
one port.
"""

from __future__ import annotations

import errno
import ipaddress
import resource
import socket
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations
from typing import Final

from lockstep.broker.settings.addresses import Listener
from lockstep.broker.settings.config import Settings
from lockstep.storage.log.segments import OPEN_FILES_MAX

RESERVED_FILES: Final = 64
FILES_PER_GROUP: Final = OPEN_FILES_MAX + 16
"""Open files that clients must leave: a log that cannot open its next file ends the process."""
OTHER_PORT_HINT: Final = "--listen HOST:PORT, or make serve LISTEN=HOST:PORT"
"""How a person chooses another port for clients."""
WILDCARD_ADDRESSES: Final = ("0.0.0.0", "::")
"""Every address of this machine, of either kind."""
FREE_PORT_ATTEMPTS = 20
"""Port 0: a free port on the first address may be taken on the second."""


class CannotListen(Exception):
    """An address cannot be listened on; the text has the reason."""


class PortConflict(CannotListen):
    """Two settings name the same port."""


def allow_many_files() -> None:
    """Raise this process's limit on open files as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return  # macOS reports "no limit" and rejects that value


def connection_limit(configured: int, group_count: int) -> int:
    """`configured` connections, or as many as the limit on open files leaves beside the log's own."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return configured
    reserved = min(RESERVED_FILES + FILES_PER_GROUP * group_count, files // 2)
    return min(configured, files - reserved)


def check_conflicts(listeners: Iterable[tuple[str, Listener]]) -> None:
    """Raises PortConflict where two of them, each with the setting it is from, would take the same port.

    On Linux `bind` does not report it: with SO_REUSEADDR both succeed as long as neither listens.
    """
    for (setting, one), (another_setting, other) in combinations(listeners, 2):
        if one.port == other.port != 0 and _overlap(one.host, other.host):
            raise PortConflict(
                f"{setting} and {another_setting} are the same port: each needs one of its own"
            )


def bind(listener: Listener, port_hint: str = OTHER_PORT_HINT, address_hint: str = "") -> list[socket.socket]:
    """Sockets bound to every address of the listener, not listening yet. Raises CannotListen.

    Args:
        port_hint: how a person chooses one.
        address_hint: what to do where the address is none of this machine's; "" for no hint.
    """
    for attempt in range(FREE_PORT_ATTEMPTS):
        try:
            return _bind_all(listener)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and listener.port == 0 and attempt < FREE_PORT_ATTEMPTS - 1:
                continue
            raise CannotListen(explain(listener, error, port_hint, address_hint)) from None
    raise AssertionError("unreachable")


def explain(
    listener: Listener, error: OSError, port_hint: str = OTHER_PORT_HINT, address_hint: str = ""
) -> str:
    """The reason for which a listener's address cannot be used. Arguments as for `bind`."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {listener.port} is in use: another program listens on {listener.host or 'all addresses'}"
            f":{listener.port}. Stop it, or choose another port: {port_hint}"
        )
    if error.errno == errno.EACCES:
        return f"no permission to listen on port {listener.port}; ports below 1024 need privileges"
    hint = f". {address_hint}" if address_hint else ""
    if isinstance(error, socket.gaierror):
        return f"{listener.host} is not a name of this machine ({error.strerror}){hint}"
    hint = hint if error.errno == errno.EADDRNOTAVAIL else ""
    return f"cannot listen on {listener.host}:{listener.port}: {error.strerror}{hint}"


@cache
def own_host_name() -> str:
    """The advertised host where `advertised.listeners` names none: this machine's name, with its domain where
    the resolver knows it. Looked up once: a resolver may take seconds. Source: Kafka's
    ListenerInfo.withWildcardHostnamesResolved."""
    return socket.getfqdn()


def host_and_port(host: str, port: int) -> str:
    """HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(bound: socket.socket) -> bool:
    """True if no other machine can reach this socket."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def _bind_all(listener: Listener) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    port = listener.port
    try:
        for family, address in _addresses(listener.host):
            try:
                bound = _bind_one(family, address, port)
            except OSError as error:
                if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and (
                    sockets or family == socket.AF_INET6
                ):
                    continue  # an address family that is not there, beside one that is
                raise
            sockets.append(bound)
            port = bound.getsockname()[1]
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, "no such address on this machine")
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def _overlap(host: str, other: str) -> bool:
    try:
        pairs = [(one, another) for one in _addresses(host) for another in _addresses(other)]
    except OSError:  # the name is unknown: `bind` raises the error
        return False
    return any(
        family == other_family
        and (address == other_address or not {address, other_address}.isdisjoint(WILDCARD_ADDRESSES))
        for (family, address), (other_family, other_address) in pairs
    )


def _addresses(host: str) -> Sequence[tuple[socket.AddressFamily, str]]:
    if not host:
        return [(socket.AF_INET, WILDCARD_ADDRESSES[0]), (socket.AF_INET6, WILDCARD_ADDRESSES[1])]
    addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    unique = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in addresses)
    return sorted(unique, key=lambda pair: pair[0] != socket.AF_INET)


def _bind_one(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    new_socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        new_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            new_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        new_socket.setblocking(False)
        new_socket.bind((address, port))
    except BaseException:
        new_socket.close()
        raise
    return new_socket


def set_buffer_sizes(listening: socket.socket, settings: Settings) -> None:
    """Buffer sizes are inherited by accepted sockets; they must be set before listen()."""
    for option, size in (
        (socket.SO_SNDBUF, settings.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, settings.socket_receive_buffer_bytes),
    ):
        if size > 0:
            listening.setsockopt(socket.SOL_SOCKET, option, size)
