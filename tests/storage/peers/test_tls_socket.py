"""A dialed connection's TLS over a socket that takes as little as it likes: nothing is lost or repeated."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
from collections import deque
from itertools import islice
from typing import cast

import pytest

from lockstep.storage.peers import tls_socket
from lockstep.storage.peers.tls_socket import CALL_BYTES, PIECE_BYTES, TlsSocket
from tests.support.peer_certificates import peer_certificates


class FickleSocket:
    """A socket whose kernel takes some bytes, or none."""

    def __init__(self, take: random.Random | None) -> None:
        self._take = take
        self.taken = bytearray()
        self.arriving: deque[bytes] = deque()
        self.closed = False

    def send(self, data: memoryview) -> int:
        count = len(data)
        if self._take is not None:
            if self._take.random() < 0.4:
                raise BlockingIOError
            count = self._take.randint(1, count)
        self.taken += data[:count]
        return count

    def recv(self, count: int) -> bytes:
        if not self.arriving:
            raise BlockingIOError
        return self.arriving.popleft()

    def fileno(self) -> int:
        return 7

    def close(self) -> None:
        self.closed = True


class Pair:
    """A connection after its handshake, and what the other side reads of it."""

    def __init__(self, take: random.Random | None = None) -> None:
        self.socket = FickleSocket(None)
        here, there = peer_certificates(1), peer_certificates(2)
        self.tls = TlsSocket(cast(socket.socket, self.socket), here.client_context)
        self.received, self.answer = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.other = there.server_context.wrap_bio(self.received, self.answer, server_side=True)
        ours = self.tls._session
        for _ in range(2):
            for step in (ours.do_handshake, self.other.do_handshake):
                with contextlib.suppress(ssl.SSLWantReadError):
                    step()
                self.received.write(ours.take())
                ours.feed(self.answer.read())
        self.socket._take = take

    def read(self) -> bytes:
        self.received.write(bytes(self.socket.taken))
        self.socket.taken.clear()
        found = bytearray()
        while True:
            try:
                part = self.other.read(1 << 16)
            except ssl.SSLWantReadError:
                return bytes(found)
            if not part:
                return bytes(found)
            found += part


def pieces(dice: random.Random) -> list[bytes]:
    sizes = [
        dice.choice((1, 20, 100, 3000, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES + 5)) for _ in range(9)
    ]
    return [dice.randbytes(size) for size in sizes]


@pytest.mark.parametrize("seed", range(20))
def test_all_bytes_arrive_once_and_in_order(seed: int) -> None:
    """The caller does what `Link` does: it comes again with what is left, and with more behind it."""
    dice = random.Random(seed)
    pair, waiting = Pair(dice), deque[memoryview]()
    expected, found = bytearray(), bytearray()
    parts = pieces(dice)
    while parts or waiting:
        if parts and (not waiting or dice.random() < 0.3):
            waiting.append(memoryview(parts[0]))
            expected += parts.pop(0)
        try:
            sent = pair.tls.sendmsg(list(islice(waiting, dice.randint(1, 4))))
        except BlockingIOError:
            continue
        assert 0 < sent <= CALL_BYTES + PIECE_BYTES
        while sent:
            first = waiting.popleft()
            if sent < len(first):
                waiting.appendleft(first[sent:])
                break
            sent -= len(first)
        found += pair.read()
    assert found == expected


def test_one_call_takes_a_bounded_part_of_a_large_message() -> None:
    pair = Pair()
    assert pair.tls.send(bytes(5 * CALL_BYTES)) == CALL_BYTES and len(pair.read()) == CALL_BYTES


def test_small_buffers_are_one_record() -> None:
    pair = Pair()
    assert pair.tls.sendmsg([b"ab", b"", b"cd"]) == 4
    overhead = 22
    assert len(pair.socket.taken) == 4 + overhead and pair.read() == b"abcd"


def test_nothing_to_read_the_end_and_what_is_read() -> None:
    pair = Pair()
    with pytest.raises(BlockingIOError):
        pair.tls.recv(1)
    pair.other.write(b"x")
    record = pair.answer.read()
    pair.socket.arriving += [record[:5], record[5:]]
    with pytest.raises(BlockingIOError):
        pair.tls.recv(1)
    assert pair.tls.recv(1) == b"x"
    with pytest.raises(ssl.SSLWantReadError):
        pair.other.unwrap()
    pair.socket.arriving += [pair.answer.read(), b""]
    assert pair.tls.recv(1) == b"", "the end that TLS has"
    assert pair.tls.recv(1) == b"", "the kernel's"


def test_changed_bytes_are_an_error_of_the_system() -> None:
    pair = Pair()
    pair.other.write(b"xy")
    data = bytearray(pair.answer.read())
    data[-1] ^= 1
    pair.socket.arriving.append(bytes(data))
    with pytest.raises(OSError, match=r"(?i)mac|decrypt"):
        pair.tls.recv(1)


def test_a_close_notifies_the_peer() -> None:
    pair = Pair()
    assert pair.tls.fileno() == 7
    pair.tls.close()
    assert pair.socket.closed and pair.read() == b"" and pair.other.shared_ciphers()
    with pytest.raises(ssl.SSLError):
        pair.tls._session.write(b"more")


def test_a_close_before_the_handshake() -> None:
    fickle = FickleSocket(None)
    TlsSocket(cast(socket.socket, fickle), peer_certificates(1).client_context).close()
    assert fickle.closed


def test_limits() -> None:
    assert tls_socket.CALL_BYTES % tls_socket.PIECE_BYTES == 0
