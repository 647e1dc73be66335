"""Which sockets are closed by their clients, over loopback."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from lockstep.broker.network.disconnect_detection import find_disconnected


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with client, accepted:
            yield client, accepted


def test_an_open_connection_is_not_disconnected(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.sendall(b"x" * 100)
    assert find_disconnected([accepted.fileno()]) == {} == find_disconnected([])


@pytest.mark.parametrize("unread", [0, 100])
def test_a_closed_one_is_known_with_what_is_unread(
    pair: tuple[socket.socket, socket.socket], unread: int
) -> None:
    client, accepted = pair
    client.sendall(b"x" * unread)
    client.shutdown(socket.SHUT_WR)
    assert find_disconnected([accepted.fileno(), client.fileno()]) == {accepted.fileno(): unread}


def test_after_a_reset_nothing_is_left_to_read(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.sendall(b"x" * 100)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    assert find_disconnected([accepted.fileno()]) == {accepted.fileno(): None}
