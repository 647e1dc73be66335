"""Validation of peer messages: the shape that their class declares, numbers in range, bytes for bytes.

The transport's codec gives nothing else; another caller may. A message that passes may still be wrong, stale
or hostile, which is for the core and for checksums to find, but it raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Append, Install, Message, RangeResponse
from lockstep.storage.snapshot_chunk import ChunkPayload

LIMIT = 1 << 62
"""Terms, indexes and member ids are below this; on disk and on the wire they have 64 bits."""


def is_well_formed(message: object) -> bool:
    """Returns False for a message that must be dropped."""
    if not isinstance(message, Message):
        return False
    for name in _NUMBERS[type(message)]:
        number = getattr(message, name)
        if type(number) is not int or not -LIMIT < number < LIMIT:
            return False
    check = _FIELD_CHECKS.get(type(message))
    return check is None or check(message)


def _append(message: Append) -> bool:
    return (
        _is_bytes(message.frames)
        and _is_pairs(message.runs, int)
        and _is_pairs(message.configurations, Configuration)
    )


def _install(message: Install) -> bool:
    piece = message.payload
    return isinstance(piece, ChunkPayload) and _is_bytes(piece.data) and type(piece.chain) is int


def _range_response(message: RangeResponse) -> bool:
    return _is_bytes(message.frames) and 0 <= message.chain < 1 << 32


def _is_bytes(buffers: object) -> bool:
    return isinstance(buffers, _SEQUENCES) and all([isinstance(each, _BUFFERS) for each in buffers])


def _is_pairs(pairs: object, second: type) -> bool:
    return isinstance(pairs, _SEQUENCES) and all(
        isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is int and isinstance(pair[1], second)
        for pair in pairs
    )


def _kinds(base: type[Message]) -> list[type[Message]]:
    return [kind for each in base.__subclasses__() for kind in (each, *_kinds(each))]


_SEQUENCES = (list, tuple)
_BUFFERS = (bytes, bytearray, memoryview)
_ALL: list[type[Message]] = [Message, *_kinds(Message)]
_NUMBERS: dict[type[Message], tuple[str, ...]] = {
    kind: tuple(each.name for each in fields(kind) if each.type == "int") for kind in _ALL
}
_FIELD_CHECKS: dict[type[Message], Callable[..., bool]] = {
    Append: _append,
    Install: _install,
    RangeResponse: _range_response,
}
