"""What comes over a socket, cut into answers: in pieces, several at once, larger than there is room for."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from bench.load.connection import ResponseReader
from bench.load.wire import UnexpectedResponse


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_an_answer_is_given_out_once_it_is_whole(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    responses = ResponseReader(ours)
    whole = frame(b"abcdef")
    for piece in (whole[:2], whole[2:5], whole[5:-1]):
        theirs.sendall(piece)
        assert responses.poll() is None
    theirs.sendall(whole[-1:])
    assert responses.wait() == whole
    theirs.sendall(frame(b"abcd"))
    assert responses.wait() == frame(b"abcd")


def test_only_one_is_taken_where_one_was_requested(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(frame(b"aaaa") + frame(b"bbbb"))
    with pytest.raises(UnexpectedResponse, match="more bytes than one"):
        ResponseReader(ours).poll()


def test_an_answer_without_room_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(frame(bytes(12)))
    assert len(ResponseReader(ours, room_bytes=16).wait()) == 16
    theirs.sendall(frame(bytes(13)))
    with pytest.raises(UnexpectedResponse, match="17 bytes where 16"):
        ResponseReader(ours, room_bytes=16).poll()
    assert ours.recv(1)
    theirs.sendall(frame(b"aaaa") + frame(bytes(200)))
    with pytest.raises(UnexpectedResponse, match="204 bytes where 16"):
        list(ResponseReader(ours, room_bytes=16).poll_all())


def test_all_that_is_whole_is_given_out_and_the_rest_kept(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    responses = ResponseReader(ours)
    theirs.sendall(frame(b"first") + frame(b"second") + frame(b"three")[:5])
    assert [bytes(each) for each in responses.poll_all()] == [frame(b"first"), frame(b"second")]
    theirs.sendall(frame(b"three")[5:])
    assert [bytes(each) for each in responses.poll_all()] == [frame(b"three")]


def test_a_connection_that_ends_is_no_answer(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(UnexpectedResponse, match="closed"):
        ResponseReader(ours).poll()


def test_an_answer_has_a_correlation_id(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(frame(b"abc"))
    with pytest.raises(UnexpectedResponse, match="7 bytes: it has no correlation id"):
        ResponseReader(ours).poll()
