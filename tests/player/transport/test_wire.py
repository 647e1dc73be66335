"""Messages to protobuf bytes and back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.player.core.messages import Batch, Hello
from lockstep.player.generated.player_pb2 import FromPlayer, FromTarget
from lockstep.player.transport import wire
from lockstep.player.transport.interface import Handshake, Malformed
from tests.player.transport.ends import Heard, batch, of_several, shape
from tests.support.cases import each_case

POSITIONS = st.integers(-1, 2**63 - 2000)
PAYLOADS = st.lists(st.none() | st.binary(min_size=1, max_size=200), min_size=1, max_size=20)


@given(POSITIONS, PAYLOADS)
def test_batches_come_back(previous: int, payloads: list[bytes | None]) -> None:
    sent = batch(previous, *payloads)
    came = wire.from_player(wire.batch_bytes(sent))
    assert isinstance(came, Batch)
    assert shape(came) == shape(sent)


@given(POSITIONS, PAYLOADS, st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3))
def test_batches_of_several_partitions_come_back(
    previous: int, payloads: list[bytes | None], partitions: list[int]
) -> None:
    sent = of_several(batch(previous, *payloads), partitions)
    came = wire.from_player(wire.batch_bytes(sent))
    assert isinstance(came, Batch)
    assert shape(came) == shape(sent)


@given(st.text(), POSITIONS, POSITIONS, POSITIONS, st.text(), st.integers(0, 2**31 - 1))
def test_greetings_come_back(
    log_id: str, term: int, other: int, first: int, topic: str, partition: int
) -> None:
    came = wire.from_player(wire.hello_bytes(Handshake(Hello(log_id, term, other, first), topic, partition)))
    assert isinstance(came, Handshake)
    hello = came.hello
    assert (hello.log_id, hello.player_term, hello.target_term) == (log_id, term, other)
    assert (hello.first_position, came.topic, came.partition) == (first, topic, partition)


def test_an_empty_greeting_is_one() -> None:
    assert isinstance(wire.from_player(wire.hello_bytes(Handshake(Hello("", 0, 0, 0), "", 0))), Handshake)


def test_a_heartbeat_comes_back() -> None:
    assert wire.from_player(wire.HEARTBEAT) is None


@given(POSITIONS, POSITIONS)
def test_answers_come_back(one: int, other: int) -> None:
    heard = Heard()
    wire.dispatch(wire.greeted_bytes(one), heard)
    wire.dispatch(wire.acknowledged_bytes(one), heard)
    wire.dispatch(wire.stale_bytes(one, other), heard)
    assert heard.all == [("greeted", one), ("acknowledged", one), ("stale", one)]
    assert FromTarget.FromString(wire.stale_bytes(one, other)).stale.target_term == other


def test_positions_of_zero_are_there() -> None:
    """Zero is what protobuf leaves out."""
    heard = Heard()
    for message in (wire.greeted_bytes(0), wire.acknowledged_bytes(0), wire.stale_bytes(0, 0)):
        wire.dispatch(message, heard)
    assert heard.all == [("greeted", 0), ("acknowledged", 0), ("stale", 0)]


@each_case("data", [b"", b"\xff\xff", FromPlayer(batch={}).SerializeToString()])
def test_what_is_no_message_of_a_player(data: bytes) -> None:
    with pytest.raises(Malformed):
        wire.from_player(data)


@each_case("data", [b"", b"\xff\xff"])
def test_what_is_no_message_of_a_target(data: bytes) -> None:
    with pytest.raises(Malformed):
        wire.dispatch(data, Heard())


@given(st.binary(max_size=100))
def test_noise_is_malformed_or_a_message(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        wire.from_player(data)
