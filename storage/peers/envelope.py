"""Messages to and from frames of the wire, through the tables of `lockstep.protocol.peer_messages`.

Invariants: bytes that are no message raise MalformedMessage and nothing else. Frames of entries are sent by
reference where they are large; those that arrive are copied once, out of the receive buffer, because the log
keeps them. An Append's `sizes` do not travel: the receiver has them from the frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from struct import Struct as Binary
from typing import Any, Final

from lockstep.protocol import peer_messages as wire
from lockstep.protocol.compiler import decode, encode
from lockstep.protocol.fields import Struct
from lockstep.protocol.primitives import Buffer, Data, MalformedMessage
from lockstep.storage.raft import messages as raft
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Message
from lockstep.storage.snapshot_chunk import ChunkPayload, PayloadKind

_HEAD: Final = Binary(">ihh")
_KIND: Final = Binary(">hh")

Frame = tuple[list[Buffer], int]
"""Buffers to send one after the other, and their size in bytes."""


def pack(table: Struct, version: int = 0) -> Frame:
    """Returns a whole frame, length first. Raises MalformedMessage for a value that does not fit its
    field."""
    chunks = encode(table, version)
    if len(chunks) == 1:
        body = chunks[0]
        size = len(body) + 4
        return [_HEAD.pack(size, table.SCHEMA.api_key, version) + body], size + 4
    size = sum(map(len, chunks)) + 4
    # There is nothing between two large buffers: not worth a place in the kernel's list.
    return [_HEAD.pack(size, table.SCHEMA.api_key, version), *(each for each in chunks if each)], size + 4


def unpack(frame: memoryview) -> Struct:
    """Returns the table in a frame (without its length), with views of it. Raises MalformedMessage."""
    if len(frame) < _KIND.size:
        raise MalformedMessage(f"a frame of {len(frame)} bytes")
    kind, version = _KIND.unpack_from(frame)
    table = wire.PEER_MESSAGES.get(kind)
    if table is None or version not in table.SCHEMA.versions:
        raise MalformedMessage(f"unknown message kind {kind}, version {version}")
    return decode(table, version, frame, _KIND.size)


# --- Raft's messages ------------------------------------------------------------------------------------


def pack_message(group_id: int, message: Message) -> Frame:
    """Returns a Raft message's frame. Raises MalformedMessage."""
    to_table = _TO_TABLE.get(type(message))
    if to_table is None:
        raise MalformedMessage(f"{type(message).__name__} is not for the wire")
    return pack(to_table(group_id, message))


def message_in(table: Struct) -> tuple[int, Message] | None:
    """Returns (group, message) where the table is a Raft message's; it keeps nothing of the receive buffer.

    Raises MalformedMessage.
    """
    from_table = _FROM_TABLE.get(type(table))
    return None if from_table is None else (table.group_id, from_table(table))  # type: ignore[attr-defined]


def is_bulky(message: Message) -> bool:
    """Returns whether a message carries frames, which may be large."""
    kind = type(message)
    if kind is raft.Append:
        return bool(message.frames)  # type: ignore[attr-defined]
    return kind is raft.Install or kind is raft.RangeResponse


def _copy(data: Data) -> list[Buffer]:
    """Copies data out of the receive buffer once; a later join makes no other copy."""
    return [bytes(data)] if data else []  # type: ignore[arg-type]


def _as_list(buffers: Sequence[Buffer]) -> list[Buffer]:
    return buffers if type(buffers) is list else list(buffers)


def _append_table(group_id: int, message: raft.Append) -> Struct:
    return wire.AppendBody(
        group_id=group_id,
        sender=message.sender,
        to=message.to,
        term=message.term,
        prev_index=message.prev_index,
        prev_term=message.prev_term,
        last_index=message.last_index,
        commit_index=message.commit_index,
        sent_ms=message.sent_ms,
        chain=message.chain,
        runs=[wire.TermStart(first_index=first_index, term=term) for first_index, term in message.runs],
        configurations=[
            wire.ConfigurationEntry(entry_index=index, configuration=configuration.encode())
            for index, configuration in message.configurations
        ],
        frames=_as_list(message.frames),
    )


def _append(table: wire.AppendBody) -> Message:
    return raft.Append(
        table.sender,
        table.to,
        table.term,
        table.prev_index,
        table.prev_term,
        [(run.first_index, run.term) for run in table.runs],
        table.last_index,
        [(entry.entry_index, _configuration(entry.configuration)) for entry in table.configurations],
        table.commit_index,
        table.sent_ms,
        _copy(table.frames),
        table.chain,
    )


def _configuration(data: Buffer) -> Configuration:
    try:
        return Configuration.decode(bytes(data))
    except ValueError as error:
        raise MalformedMessage(str(error)) from None


_PIECES: Final = {wire.CHECKPOINT_PIECE: PayloadKind.CHECKPOINT, wire.FRAMES_PIECE: PayloadKind.FRAMES}
_PIECE_NUMBERS: Final = {kind: number for number, kind in _PIECES.items()}


def _install_table(group_id: int, message: raft.Install) -> Struct:
    piece = message.payload
    if not isinstance(piece, ChunkPayload):
        raise MalformedMessage("an install without a piece")
    return wire.InstallBody(
        group_id=group_id,
        sender=message.sender,
        to=message.to,
        term=message.term,
        entry_index=message.index,
        last_term=message.last_term,
        chunk=message.chunk,
        done=message.done,
        sent_ms=message.sent_ms,
        piece=_PIECE_NUMBERS[piece.kind],
        chain=piece.chain,
        data=_as_list(piece.data),
        after=piece.after,
        commit_index=message.commit_index,
    )


def _install(table: wire.InstallBody) -> Message:
    kind = _PIECES.get(table.piece)
    if kind is None:
        raise MalformedMessage(f"a piece of kind {table.piece}")
    return raft.Install(
        table.sender,
        table.to,
        table.term,
        table.entry_index,
        table.last_term,
        table.chunk,
        table.done,
        table.sent_ms,
        ChunkPayload(kind, _copy(table.data), table.chain, table.after),
        table.commit_index,
    )


def _range_table(group_id: int, message: raft.RangeResponse) -> Struct:
    return wire.RangeResponseBody(
        group_id=group_id,
        sender=message.sender,
        to=message.to,
        term=message.term,
        first_index=message.first_index,
        chain=message.chain,
        frames=_as_list(message.frames),
    )


def _range(table: wire.RangeResponseBody) -> Message:
    return raft.RangeResponse(
        table.sender, table.to, table.term, table.first_index, table.chain, _copy(table.frames)
    )


_TO_TABLE: Final[dict[type[Message], Callable[..., Struct]]] = {
    raft.Append: _append_table,
    raft.Install: _install_table,
    raft.RangeResponse: _range_table,
}
_FROM_TABLE: Final[dict[type[Struct], Callable[..., Message]]] = {
    wire.AppendBody: _append,
    wire.InstallBody: _install,
    wire.RangeResponseBody: _range,
}


def _plain(kind: type[Message], table: Any) -> None:
    """Registers a message of numbers only, whose table has the same names."""
    names = [each.name for each in fields(kind)]
    values = attrgetter(*names)

    def to_table(group_id: int, message: Message) -> Struct:
        made: Struct = table(group_id=group_id, **dict(zip(names, values(message), strict=True)))
        return made

    _TO_TABLE[kind] = to_table
    _FROM_TABLE[table] = lambda each: kind(*values(each))


_plain(raft.VoteRequest, wire.VoteRequestBody)
_plain(raft.VoteResponse, wire.VoteResponseBody)
_plain(raft.AppendResponse, wire.AppendResponseBody)
_plain(raft.Heartbeat, wire.HeartbeatBody)
_plain(raft.HeartbeatResponse, wire.HeartbeatResponseBody)
_plain(raft.TimeoutNow, wire.TimeoutNowBody)
_plain(raft.InstallResponse, wire.InstallResponseBody)
_plain(raft.RangeRequest, wire.RangeRequestBody)
