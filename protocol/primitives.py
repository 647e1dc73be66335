"""The primitives of the wire format: malformed messages, unsigned varints, and the limits on decoding.

Generated codecs (`lockstep.protocol.compiler`) do the common case inline, one byte at a time where one byte
is enough, and call these functions for the rest.

Invariants: nothing here allocates in proportion to a number read from the wire before that number was
compared with the bytes that are present. Every error is a `MalformedMessage`.

Not here: record batches (`lockstep.protocol.records`), whose varints are zig-zag, and framing.

Source: Kafka protocol guide; KIP-482 (flexible versions, compact lengths, tagged fields).
"""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
Data = bytes | bytearray | memoryview | list[bytes | bytearray | memoryview]
"""Bytes to send: one buffer, or several that follow each other and are never joined."""

ZERO_UUID = bytes(16)

MAX_STRING_BYTES = 0x7FFF
"""Kafka rejects longer strings in every version, also where a compact length allows more."""

MAX_LENGTH = 0x7FFF_FFFF
"""Lengths, counts and tags are Java ints."""

MAX_TAGS_PER_STRUCT = 1024
"""No Kafka struct has more than ten; a struct with thousands is an attack on memory."""

BY_REFERENCE_BYTES = 4096
"""Data longer than this goes to the socket as it is; copying less is cheaper than one more buffer."""

ALLOCATION_FLOOR_BYTES = 4 << 20
"""The memory that decoding may always allocate: eight times the largest frame before authentication."""

NAMES_EVERY_PARTITION = frozenset({1, 2, 3, 8, 9, 23, 28})
"""Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, OffsetForLeaderEpoch, TxnOffsetCommit: in these an
ordinary client names whatever it reads, some 550 bytes in memory a topic and 40 on the wire."""

EVERY_PARTITION_FLOORS = 8
"""The factor of `ALLOCATION_FLOOR_BYTES` for these: enough for 50,000 topics."""

REQUEST_ALLOCATION_RATIO = 8
"""Decoding a request may allocate this many times its size, as in Kafka's own bound."""

MAX_REQUEST_ALLOCATION_BYTES = 64 << 20
"""A request larger than 8 MiB holds records or members' metadata: both are views and cost little. A Produce
of 100 MB of nearly empty partitions would be seconds of work in one piece."""

RESPONSE_ALLOCATION_RATIO = 32
"""Responses come from brokers that the client has chosen; a list of a thousand replicas is many small
objects."""

READ_BACK_KINDS = frozenset({"response", "coordinator-key", "coordinator-value"})
"""The kinds with that larger ratio. A coordinator's records hold the content of several requests: those of a
transaction over 20,000 topics must not be rejected when they are read back."""

UNKNOWN_TAG_COST_BYTES = 320
"""Budget of one unknown tagged field: its entry in a dictionary, its key and its bytes object."""


TOO_MUCH_MEMORY = "decoding would take more memory than a message of this size may"


class MalformedMessage(ValueError):
    """Bytes that do not decode, or a message that cannot be encoded; the text names the error and its
    place."""


def uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """Read an unsigned varint at `pos`; returns (value, next position). At most five bytes, at most 2^31-1.

    Raises MalformedMessage when too long or too large, IndexError when the bytes end.
    """
    byte = buf[pos]
    if byte < 0x80:
        return byte, pos + 1
    return uvarint_rest(buf, pos + 1, byte)


def uvarint_rest(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, `first`, had its high bit set; `pos` is behind that byte."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAX_LENGTH:
                raise MalformedMessage(f"varint {value} is larger than 2^31-1")
            return value, pos
    raise MalformedMessage("varint is longer than 5 bytes")


def length_rest(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Like `uvarint_rest` for a compact length (value plus one), where zero must be a single byte."""
    value, pos = uvarint_rest(buf, pos, first)
    if value == 0:
        raise MalformedMessage("null length encoded in more than one byte")
    return value, pos


def uvarint_bytes(value: int) -> bytes:
    """An unsigned varint, in as few bytes as it takes."""
    if not 0 <= value <= MAX_LENGTH:
        raise MalformedMessage(f"{value} does not fit a length, a count or a tag")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_tags(out: bytearray, tags: dict[int, bytes | bytearray]) -> None:
    """Append a tagged-field section in ascending order of tag; an empty one is a single zero byte."""
    out += uvarint_bytes(len(tags))
    for tag in sorted(tags):
        content = tags[tag]
        out += uvarint_bytes(tag)
        out += uvarint_bytes(len(content))
        out += content


def with_unknown_tags(
    known: dict[int, bytes | bytearray], unknown: dict[int, bytes], defined: frozenset[int]
) -> dict[int, bytes | bytearray]:
    """`known` and `unknown` together; a tag in `defined` has a field of its own."""
    for tag in unknown:
        if tag in defined:
            raise MalformedMessage(f"unknown tag {tag} has a field of its own")
    return {**known, **unknown}


def tag_count(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """The number of tagged fields that follow; `first` is the byte before `pos`. Returns (count,
    position)."""
    count = first
    if first > 0x7F:
        count, pos = uvarint_rest(buf, pos, first)
    remaining = len(buf) - pos
    if count > MAX_TAGS_PER_STRUCT or 2 * count > remaining:
        raise MalformedMessage(f"{count} tagged fields in {remaining} bytes")
    return count, pos


def tag_and_end(buf: memoryview, pos: int) -> tuple[int, int, int]:
    """One tagged field's head: (tag, where its content ends, where it starts)."""
    tag, pos = uvarint(buf, pos)
    size, pos = uvarint(buf, pos)
    if pos + size > len(buf):
        raise MalformedMessage(f"tag {tag} of {size} bytes, {len(buf) - pos} remain")
    return tag, pos + size, pos


def keep_tag(tags: dict[int, bytes], tag: int, content: memoryview, room: int) -> int:
    """Put an unknown tagged field into `tags`; returns what is left of the allocation budget `room`.

    A repeated tag is rejected: Kafka reads both and then cannot write them.
    """
    room -= UNKNOWN_TAG_COST_BYTES + len(content)
    if room < 0:
        raise MalformedMessage(TOO_MUCH_MEMORY)
    if tag in tags:
        raise MalformedMessage(f"tag {tag} comes twice")
    tags[tag] = bytes(content)
    return room


def read_tags(buf: memoryview, pos: int, first: int, room: int) -> tuple[dict[int, bytes], int, int]:
    """A section in which every tag is unknown: (the tags, position behind them, what is left of `room`)."""
    count, pos = tag_count(buf, pos, first)
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, stop, pos = tag_and_end(buf, pos)
        room = keep_tag(tags, tag, buf[pos:stop], room)
        pos = stop
    return tags, pos, room


def skip_tags(buf: memoryview, pos: int) -> int:
    """Pass over a tagged-field section without keeping it; returns the position behind it."""
    count, pos = tag_count(buf, pos + 1, buf[pos])
    for _ in range(count):
        _, pos, _ = tag_and_end(buf, pos)
    return pos
