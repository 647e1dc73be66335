"""Messages to frames of our own and back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.player.core.messages import Batch, Hello
from lockstep.player.transport import frames
from lockstep.player.transport.interface import Handshake, Malformed
from tests.player.transport.ends import Heard, batch, of_several, shape
from tests.support.cases import each_case

POSITIONS = st.integers(-1, 2**63 - 2000)
PAYLOADS = st.lists(st.none() | st.binary(min_size=1, max_size=200), min_size=1, max_size=20)


def body(frame: bytes) -> memoryview:
    """Without its length, which is right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return memoryview(frame)[4:]


@given(POSITIONS, PAYLOADS)
def test_batches_come_back(previous: int, payloads: list[bytes | None]) -> None:
    sent = batch(previous, *payloads)
    came = frames.from_player(body(frames.batch_frame(sent)))
    assert isinstance(came, Batch)
    assert shape(came) == shape(sent)
    assert all(type(part.payload) in (bytes, type(None)) for part in came.parts)


@given(POSITIONS, PAYLOADS, st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3))
def test_batches_of_several_partitions_come_back(
    previous: int, payloads: list[bytes | None], partitions: list[int]
) -> None:
    sent = of_several(batch(previous, *payloads), partitions)
    came = frames.from_player(body(frames.batch_frame(sent)))
    assert isinstance(came, Batch)
    assert shape(came) == shape(sent)


@given(st.text(), POSITIONS, POSITIONS, POSITIONS, st.text(), st.integers(0, 2**31 - 1))
def test_greetings_come_back(
    log_id: str, term: int, other: int, first: int, topic: str, partition: int
) -> None:
    sent = Handshake(Hello(log_id, term, other, first), topic, partition)
    came = frames.from_player(body(frames.hello_frame(sent)))
    assert isinstance(came, Handshake)
    hello = came.hello
    assert (hello.log_id, hello.player_term, hello.target_term) == (log_id, term, other)
    assert (hello.first_position, came.topic, came.partition) == (first, topic, partition)


def test_a_heartbeat_comes_back() -> None:
    assert frames.from_player(body(frames.HEARTBEAT_FRAME)) is None


@given(POSITIONS, POSITIONS)
def test_answers_come_back(one: int, other: int) -> None:
    heard = Heard()
    for frame in (frames.greeted_frame(one), frames.acknowledged_frame(one), frames.stale_frame(one, other)):
        assert frames.dispatch(body(frame), heard) is None
    assert heard.all == [("greeted", one), ("acknowledged", one), ("stale", one)]


@given(st.text())
def test_the_last_words_come_back(words: str) -> None:
    heard = Heard()
    assert frames.dispatch(body(frames.end_frame(words)), heard) == words
    assert not heard.all


def test_last_words_that_are_no_utf_8_are_words_still() -> None:
    assert frames.dispatch(body(frames.end_frame("a\ud800b")), Heard()) == "a?b"
    assert frames.dispatch(memoryview(bytes([frames.ENDED]) + b"\xff!"), Heard()) == "\ufffd!"


GREETING = Handshake(Hello("log", 1, 2, 3), "topic", 0)


@each_case(
    "frame",
    [
        b"",
        b"\0",
        bytes([99]),
        bytes([frames.ACKNOWLEDGED]),
        bytes([frames.BATCH]),
        bytes([frames.HELLO]),
        bytes(body(frames.hello_frame(GREETING))).replace(b"lockstep", b"lockstop"),
        bytes(body(frames.hello_frame(GREETING)))[:-9],
        bytes(body(frames.hello_frame(GREETING)))[:-6],
        bytes(body(frames.hello_frame(GREETING))).replace(b"topic", b"\xff\xff\xff\xff\xff"),
        bytes([frames.BATCH]) + bytes(12),  # no parts
        bytes([frames.BATCH]) + bytes(8) + b"\xff\xff\xff\xff",
        bytes(body(frames.batch_frame(batch(0, b"one", b"two"))))[:-1],
        bytes([frames.BATCH_OF_SEVERAL]) + bytes(11) + b"\1" + bytes(12),  # no partition of its part
        bytes(body(frames.batch_frame(of_several(batch(0, b"one", b"two"), [1]))))[:-1],
        bytes(body(frames.batch_frame(batch(0, b"one", b"two")))) + b"!",
    ],
)
def test_what_is_no_frame_of_a_player(frame: bytes) -> None:
    with pytest.raises(Malformed):
        frames.from_player(memoryview(frame))


@each_case(
    "frame",
    [
        b"",
        b"\0",
        bytes([frames.BATCH]),
        bytes([frames.ACKNOWLEDGED]) + bytes(7),
        bytes([frames.STALE]) + bytes(8),
    ],
)
def test_what_is_no_frame_of_a_target(frame: bytes) -> None:
    heard = Heard()
    with pytest.raises(Malformed):
        frames.dispatch(memoryview(frame), heard)
    assert not heard.all


@given(st.integers(0, 9), st.binary(max_size=100))
def test_noise_is_malformed_or_a_message(kind: int, data: bytes) -> None:
    with contextlib.suppress(Malformed):
        frames.from_player(memoryview(bytes([kind]) + data))
    with contextlib.suppress(Malformed):
        frames.dispatch(memoryview(bytes([kind]) + data), Heard())
