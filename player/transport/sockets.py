"""Sockets that a target listens on: bound to every address of its host at one port, or to none.

A host may have several addresses (localhost: IPv4 and IPv6). A target that got only one of them would be
reached by some players and not by others, who may reach another program there.
Does not: listen.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Final

ATTEMPTS_FOR_A_FREE_PORT: Final = 20
"""Port 0: a free port of the first address may be taken at the second."""
_NO_SUCH_ADDRESS: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def bind_all(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all at one port (0: any that is free). Raises OSError."""
    for _ in range(ATTEMPTS_FOR_A_FREE_PORT - 1 if port == 0 else 0):
        try:
            return _bind_all(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return _bind_all(host, port)


def literal_addresses(sockets: Sequence[socket.socket]) -> list[str]:
    """The addresses of bound sockets, as gRPC writes them; closes these, for a server that binds its own."""
    found = []
    for each in sockets:
        host, port = each.getsockname()[:2]
        found.append(f"[{host}]:{port}" if each.family == socket.AF_INET6 else f"{host}:{port}")
        each.close()
    return found


def describe_bind_error(address: str, error: OSError) -> OSError:
    """Returns an OSError with a text for an operator why an address cannot be bound."""
    why = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        why = "address already in use; stop the program that listens there, or choose another port"
    return OSError(f"cannot listen at {address}: {why}")


def _bind_all(host: str, port: int) -> list[socket.socket]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
    with_port: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, address in addresses:
            try:
                each = _bind(family, (address[0], port, *address[2:]))
            except OSError as error:
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
                absent = error  # a kind of address that this machine has not, beside one that it has
                continue
            with_port.append(each)
            port = each.getsockname()[1]
        if not with_port:
            raise absent or OSError(errno.EADDRNOTAVAIL, "no such address on this machine")
    except BaseException:
        for each in with_port:
            each.close()
        raise
    return with_port


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
