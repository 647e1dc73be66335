"""Messages to frames and back: nothing is lost on the way, and nothing else is let in."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.protocol import peer_messages as wire
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.peer_messages import PEER_MESSAGES
from lockstep.protocol.primitives import MalformedMessage
from lockstep.storage.peers.envelope import is_bulky, message_in, pack, pack_message, unpack
from lockstep.storage.raft import messages as raft
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Append, Heartbeat, Install, Message, RangeResponse
from lockstep.storage.snapshot_chunk import ChunkPayload, PayloadKind
from tests.protocol.instances import PROFILE
from tests.protocol.instances import messages as instances
from tests.support.cases import each_case

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT32 = st.integers(0, (1 << 32) - 1)
BUFFERS = st.lists(
    st.one_of(st.binary(max_size=40), st.binary(min_size=4097, max_size=4100).map(bytearray)), max_size=4
)
MEMBERS = st.lists(INT64, max_size=3).map(tuple)
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "runs": st.lists(st.tuples(INT64, INT64), max_size=3),
    "configurations": st.lists(
        st.tuples(INT64, st.builds(Configuration, MEMBERS, MEMBERS, MEMBERS)), max_size=2
    ),
    "frames": BUFFERS,
    "chain": UINT32,
    "sizes": st.just(()),
    "payload": st.builds(ChunkPayload, st.sampled_from(PayloadKind), BUFFERS, UINT32),
}
KINDS = [each for each in vars(raft).values() if isinstance(each, type) and Message in each.__mro__[1:]]


def value_of(name: str, type_name: str) -> st.SearchStrategy[Any]:
    if name in SPECIAL:
        return SPECIAL[name]
    return {"int": INT64, "bool": st.booleans()}[type_name]


def some(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{each.name: value_of(each.name, str(each.type)) for each in fields(kind)})


def sent(message: Message) -> memoryview:
    buffers, size = pack_message(7, message)
    data = b"".join(buffers)
    assert len(data) == size == int.from_bytes(data[:4], "big") + 4
    return memoryview(data)[4:]


def plain(message: Message) -> Message:
    """The same with the bytes of frames in one piece each."""
    if isinstance(message, Append | RangeResponse):
        message.frames = b"".join(message.frames)  # type: ignore[assignment]
    if isinstance(message, Install):
        piece = message.payload
        assert isinstance(piece, ChunkPayload)
        message.payload = (piece.kind, b"".join(piece.data), piece.chain)
    return message


def test_there_is_a_table_for_every_message() -> None:
    assert len(KINDS) == 11
    for kind in KINDS:
        assert any(table.__name__ == kind.__name__ + "Body" for table in PEER_MESSAGES.values())


@each_case("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_message_arrives_as_it_was_sent(kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(some(kind))
    found = message_in(unpack(sent(message)))
    assert found is not None
    assert found[0] == 7 and type(found[1]) is kind
    assert plain(found[1]) == plain(message)


@pytest.mark.parametrize("table", PEER_MESSAGES.values(), ids=lambda table: table.__name__)
@PROFILE
@given(data=st.data())
def test_a_table_and_tags_of_later_versions_arrive(table: type[Struct], data: st.DataObject) -> None:
    drawn = data.draw(instances(table, 0))
    assert unpack(memoryview(b"".join(pack(drawn)[0]))[4:]) == drawn


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), data=st.data())
def test_changed_and_shortened_bytes_raise_nothing_else(kind: type[Message], data: st.DataObject) -> None:
    frame = bytearray(sent(data.draw(some(kind))))
    cut = data.draw(st.integers(0, len(frame)))
    with pytest.raises(MalformedMessage):
        message_in(unpack(memoryview(frame[: min(cut, len(frame) - 1)])))
    for _ in range(4):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedMessage):
        message_in(unpack(memoryview(frame)))


@given(st.binary(max_size=200))
def test_noise_raises_nothing_else(noise: bytes) -> None:
    for kind in (0, 3, 8, 11, 0x4C53):
        with contextlib.suppress(MalformedMessage):
            message_in(unpack(memoryview(kind.to_bytes(2, "big") + b"\0\0" + noise)))


def test_large_buffers_go_by_reference_and_what_arrives_is_copied_once() -> None:
    large, small = bytearray(b"x" * 5000), b"y" * 100
    buffers, _ = pack_message(1, Append(1, 2, 3, 4, 5, [(5, 3)], 6, [], 4, 9, [large, large, small], 1))
    assert [each is large for each in buffers] == [False, False, True, True, False]
    assert all(buffers), "an empty buffer costs a place in the kernel's list"
    frame = bytearray(b"".join(buffers))
    found = message_in(unpack(memoryview(frame)[4:]))
    assert found is not None and isinstance(found[1], Append)
    frame[:] = bytes(len(frame))
    (owned,) = found[1].frames
    assert owned == large + large + small
    assert b"".join(found[1].frames) is owned


def test_what_is_bulky() -> None:
    frames = Append(1, 2, 3, 4, 5, [], 6, [], 4, 9, [b"x"])
    assert is_bulky(frames) and is_bulky(RangeResponse(1, 2, 3, 4, 5)) and is_bulky(Install(*range(1, 9)))
    assert not is_bulky(Append(1, 2, 3, 4, 5, [], 4, [], 4, 9)) and not is_bulky(Heartbeat(1, 2, 3, 4, 5))


def test_what_cannot_be_sent_is_refused() -> None:
    for message in (
        Message(1, 2, 3),
        Install(1, 2, 3, 4, 5, 6, True, 7),
        Heartbeat(1, 2, 3, 1 << 63, 5),
        Append(1, 2, 3, 4, 5, [], 6, [], 4, 9, [b"x"], -1),
    ):
        with pytest.raises(MalformedMessage):
            pack_message(1, message)


def test_what_no_node_sends_is_refused() -> None:
    install = wire.InstallBody(piece=2)
    append = wire.AppendBody(
        configurations=[wire.ConfigurationEntry(entry_index=1, configuration=b"\1\0\0\0\0\0\0")]
    )
    for table in (install, append):
        with pytest.raises(MalformedMessage):
            message_in(unpack(memoryview(b"".join(pack(table)[0]))[4:]))
    for frame in (b"", b"\0\1\0", b"\0\1\0\1", b"\0\0\0\0", b"\x7f\xff\0\0"):
        with pytest.raises(MalformedMessage):
            unpack(memoryview(frame))


def test_these_tables_are_none_of_kafkas() -> None:
    kafkas = {table for pair in MESSAGES.values() for table in pair}
    assert not kafkas & set(PEER_MESSAGES.values())
