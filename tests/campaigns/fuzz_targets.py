"""What the fuzzer feeds: each part of the product that reads bytes from a peer, as a function of bytes.

Owns: for each target, how an input's bytes become calls, which errors are declared (anything else is a
finding), and what must hold of what was accepted. An input's first two bytes are an API key and a version
where messages are read; so an input means the same to both engines.
Invariants: an input leaves nothing behind (the `handlers` target starts a new broker now and then).
Does not: draw inputs (`fuzz_grammar`, `fuzz_coverage`), or drive a broker (`fuzz_broker`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lockstep.broker.fetch.api.list_offsets import first_record_at
from lockstep.broker.produce.batch_validation import AppendLimits, check, header_of
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.topic_default_settings import MAX_DECOMPRESSED_BYTES
from lockstep.protocol.api import read_request_header, response_header_version
from lockstep.protocol.client_errors import ClientError
from lockstep.protocol.client_protocol import ClientProtocol
from lockstep.protocol.compiler import decode, decoder, encode_bytes, encoder
from lockstep.protocol.fields import Struct
from lockstep.protocol.frame_reader import FrameReader, MalformedFrame
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.primitives import MalformedMessage
from lockstep.protocol.records import control
from lockstep.protocol.records.batch import MalformedBatch, iter_headers
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.compression import decompress
from lockstep.protocol.records.record import iter_records

MAX_EXPANDED_BYTES: Final = 1 << 20
MAX_STREAM_FRAME: Final = 1 << 16
KEYS: Final = sorted(MESSAGES)


class Violated(Exception):
    """Something was accepted of which a promise does not hold."""


def request(data: bytes) -> bool:
    """A request body of any table; what is accepted encodes to bytes that decode to the same again."""
    cls, version = _chosen(data, 0)
    try:
        message = decode(cls, version, data[2:], trailing=True)
    except MalformedMessage:
        return False
    _same_again(message, version)
    return True


def response(data: bytes) -> bool:
    """A response as our own client reads it, from its correlation id on."""
    cls, version = _chosen(data, 1)
    head = b"\0\0\0\x01" + (b"\0" if response_header_version(data[0] if data else 0, version) else b"")
    try:
        protocol: ClientProtocol[None] = ClientProtocol("peer", "fuzz", "fuzz")
        message = protocol.decode_response(cls, version, memoryview(head + data[2:]))
    except ClientError:
        return False
    _same_again(message, version)
    return True


def header(data: bytes) -> bool:
    """A whole frame's request header."""
    try:
        _, pos = read_request_header(memoryview(data))
    except MalformedMessage:
        return False
    if not 8 <= pos <= len(data):
        raise Violated(f"the body of a frame of {len(data)} bytes begins at {pos}")
    return True


def stream(data: bytes) -> bool:
    """A connection's bytes: the frames are the same however the bytes are cut."""
    if not data:
        return False
    whole, failed = _frames(data[1:], len(data))
    piece_bytes = max(1 + data[0], len(data) // 64)
    pieces, failed_too = _frames(data[1:], piece_bytes)
    if whole != pieces or failed != failed_too:
        raise Violated(f"{len(whole)} frames in one piece, {len(pieces)} in pieces of {piece_bytes}")
    return not failed


def records(data: bytes) -> bool:
    """Record batches, as the append path, lookups by time and our client read them."""
    accepted = False
    try:
        check(BatchBody(data, header_of(data)), _LIMITS, 9)
        accepted = True
    except RequestError:
        pass
    try:
        for at, head in iter_headers(data):
            if head.is_control:
                control.parse(data, at)
            found = first_record_at(memoryview(data)[at:], 5, 0, MAX_EXPANDED_BYTES)
            if found is None and head.base_offset >= 0:
                raise Violated("only a lookup from within a batch finds nothing in it")
            if found is not None and found[0] < 0:
                raise Violated(f"a lookup from offset 0 found {found[0]}")
            count = sum(1 for _ in iter_records(data, at, max_decompressed_bytes=MAX_EXPANDED_BYTES))
            if count != head.record_count:
                raise Violated(f"{count} records in a batch of {head.record_count}")
            accepted = True
    except MalformedBatch:
        pass
    return accepted


def compression(data: bytes) -> bool:
    """Compressed data of each codec under a cap: never more than the cap comes out."""
    if len(data) < 2:
        return False
    cap = 1 << (8 + data[1] % 13)
    try:
        out = decompress(data[0] % 8, data[2:], cap)
    except MalformedBatch:
        return False
    if len(out) > cap:
        raise Violated(f"{len(out)} bytes came out, {cap} were allowed")
    return True


CODECS: Final[dict[str, Callable[[bytes], bool]]] = {
    "request": request,
    "response": response,
    "header": header,
    "stream": stream,
    "records": records,
    "compression": compression,
}
"""Name to function: was the input accepted? Every exception is a finding."""


class _Limits:
    max_message_bytes = 1 << 20
    max_decompressed_message_bytes = MAX_DECOMPRESSED_BYTES
    log_append_time = False
    timestamp_before_max_ms = 1 << 62
    timestamp_after_max_ms = 1 << 62
    is_compacted = False
    compression_type = "producer"
    lockstep_locks = "ignore"


_LIMITS: Final[AppendLimits] = _Limits()


def compile_all() -> None:
    """Make the codec of every message in every version."""
    for pair in MESSAGES.values():
        for cls in pair:
            for version in cls.SCHEMA.versions:
                decoder(cls, version)
                encoder(cls, version)


def _chosen(data: bytes, side: int) -> tuple[type[Struct], int]:
    """The class and version that an input's first two bytes choose; unknown keys wrap around."""
    key = data[0] if data else 0
    if key not in MESSAGES:
        key = KEYS[key % len(KEYS)]
    cls = MESSAGES[key][side]
    versions = cls.SCHEMA.versions
    place = data[1] if len(data) > 1 else 0
    return cls, versions.low + place % (versions.high - versions.low + 1)


def version_byte(api_key: int, version: int) -> int:
    """What an input's second byte must be for this version."""
    return version - MESSAGES[api_key][0].SCHEMA.versions.low


def _same_again(message: Struct, version: int) -> None:
    once = encode_bytes(message, version)
    again = encode_bytes(decode(type(message), version, once), version)
    if once != again:
        raise Violated(f"encodes as {once[:100].hex()}, then as {again[:100].hex()}")


def _frames(data: bytes, piece_bytes: int) -> tuple[list[bytes], bool]:
    reader = FrameReader(MAX_STREAM_FRAME)
    frames: list[bytes] = []
    at = 0
    while at < len(data):
        room = reader.get_buffer()
        size = min(len(room), piece_bytes, len(data) - at)
        room[:size] = data[at : at + size]
        at += size
        try:
            frames += map(bytes, reader.commit(size))
        except MalformedFrame as error:
            return frames + [bytes(frame) for frame in error.frames], True
    return frames, False
