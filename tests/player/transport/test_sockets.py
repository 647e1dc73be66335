"""A target listens at every address of its host, at one port, or does not start."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.player.transport import sockets
from lockstep.player.transport.grpc_server import GrpcServer
from lockstep.player.transport.interface import Server
from lockstep.player.transport.raw_server import RawServer
from lockstep.player.transport.sockets import bind_all, literal_addresses
from tests.player.transport.ends import Target

HOST = "two.addresses"
SERVERS = pytest.mark.parametrize("server", [GrpcServer, RawServer])


@pytest.fixture(autouse=True)
def a_host_with_two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As localhost is one of 127.0.0.1 and ::1, on a machine of either kind."""
    real = socket.getaddrinfo

    def found(host: str, port: int, *more: Any, **named: Any) -> Any:
        if host != HOST:
            return real(host, port, *more, **named)
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("127.0.0.1", port)), (*kind, ("127.0.0.2", port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def _listening(host: str, port: int = 0) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    made.listen()
    return made


def test_all_addresses_at_one_port() -> None:
    one, other = literal_addresses(bind_all(HOST, 0))
    assert one.startswith("127.0.0.1:") and other == one.replace("127.0.0.1", "127.0.0.2")
    assert literal_addresses(bind_all("::1", 0))[0].startswith("[::1]:") or not socket.has_ipv6


@SERVERS
async def test_it_is_reached_at_each(server: Callable[..., Server]) -> None:
    made = server(Target())
    host, port = (await made.start(f"{HOST}:0")).split(":")
    try:
        assert host == HOST
        for address in ("127.0.0.1", "127.0.0.2"):
            socket.create_connection((address, int(port)), 5).close()
    finally:
        await made.close(0)


@SERVERS
@pytest.mark.parametrize("taken", ["127.0.0.1", "127.0.0.2"])
async def test_one_that_is_taken_refuses_both(server: Callable[..., Server], taken: str) -> None:
    free = "127.0.0.1" if taken == "127.0.0.2" else "127.0.0.2"
    with _listening(taken) as other:
        port = other.getsockname()[1]
        made = server(Target())
        with pytest.raises(OSError, match=f"^cannot listen at {HOST}:{port}: address already in use; stop"):
            await made.start(f"{HOST}:{port}")
        await made.close(0)
        _listening(free, port).close()


@SERVERS
async def test_a_second_target_at_a_port_is_refused(server: Callable[..., Server]) -> None:
    first, second = server(Target()), server(Target())
    address = await first.start("127.0.0.1:0")
    try:
        with pytest.raises(OSError, match="address already in use"):
            await second.start(address)
    finally:
        await second.close(0)
        await first.close(0)


def test_a_kind_of_address_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sockets._bind

    def bind(family: int, address: tuple[object, ...]) -> socket.socket:
        if address[0] == "127.0.0.2":
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return real(family, address)

    monkeypatch.setattr(sockets, "_bind", bind)
    (one,) = literal_addresses(bind_all(HOST, 0))
    assert one.startswith("127.0.0.1:")
    with pytest.raises(OSError, match="Cannot assign"):
        bind_all("127.0.0.2", 0)
