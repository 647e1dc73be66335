"""The few messages of consumer groups that the load generator sends, written out by hand.

Owns: FindCoordinator v2, JoinGroup v5, SyncGroup v3, Heartbeat v3, LeaveGroup v2 and OffsetCommit v7: the
last versions without compact lengths. As in `wire.py`, nothing is shared with the broker that is measured.
Field order: Apache Kafka 4.4.0's message JSON. Shapes: every `..._request` is a body without its header;
every `..._answer` takes a response body and raises WrongAnswer where it is too short.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from bench.load.wire import WrongAnswer, check_answers

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 10, 11, 12, 13, 14
VERSIONS: Mapping[int, int] = {
    OFFSET_COMMIT: 7,
    FIND_COORDINATOR: 2,
    JOIN_GROUP: 5,
    HEARTBEAT: 3,
    LEAVE_GROUP: 2,
    SYNC_GROUP: 3,
}
NO_ERROR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 0, 22, 25, 27, 79

_CLIENT_ID = b"bench"
_NULL_STRING = b"\xff\xff"
_CORRELATION_POS = 8


def string(text: str) -> bytes:
    """A string with its 2-byte length."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def byte_string(data: bytes) -> bytes:
    """Bytes with their 4-byte length."""
    return struct.pack(">i", len(data)) + data


def encode_frame(api_key: int, correlation_id: int, body: bytes) -> bytearray:
    """A whole request with length prefix and header v1."""
    head = struct.pack(">hhih", api_key, VERSIONS[api_key], correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
    return bytearray(struct.pack(">i", len(head) + len(body)) + head + body)


class Reader:
    """Takes fields off a response body in order."""

    __slots__ = ("_data", "_pos")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def take(self, layout: str) -> int:
        """One number."""
        try:
            (value,) = struct.unpack_from(layout, self._data, self._pos)
        except struct.error as error:
            raise WrongAnswer(f"a response cut short at byte {self._pos}") from error
        self._pos += struct.calcsize(layout)
        return int(value)

    def blob(self, length: int) -> bytes:
        if length < 0:
            return b""
        data = self._data[self._pos : self._pos + length]
        if len(data) != length:
            raise WrongAnswer(f"a response cut short at byte {self._pos}")
        self._pos += length
        return data

    def string(self) -> str:
        return self.blob(self.take(">h")).decode()

    def byte_string(self) -> bytes:
        return self.blob(self.take(">i"))


def find_coordinator_request(group: str) -> bytes:
    return string(group) + b"\x00"


def find_coordinator_answer(body: bytes) -> tuple[int, int]:
    """(error code, the coordinator's port)."""
    reader = Reader(body)
    reader.take(">i")
    error = reader.take(">h")
    reader.string()
    reader.take(">i")
    reader.string()
    return error, reader.take(">i")


def join_request(group: str, member_id: str, session_ms: int, rebalance_ms: int, metadata: bytes) -> bytes:
    return (
        string(group)
        + struct.pack(">ii", session_ms, rebalance_ms)
        + string(member_id)
        + _NULL_STRING
        + string("consumer")
        + struct.pack(">i", 1)
        + string("range")
        + byte_string(metadata)
    )


@dataclass(frozen=True, slots=True)
class Joined:
    """The response of JoinGroup; `members` only for the leader."""

    error: int
    generation: int
    leader: str
    member_id: str
    members: tuple[str, ...]


def join_answer(body: bytes) -> Joined:
    reader = Reader(body)
    reader.take(">i")
    error, generation = reader.take(">h"), reader.take(">i")
    reader.string()
    leader, member_id = reader.string(), reader.string()
    members = []
    for _ in range(reader.take(">i")):
        members.append(reader.string())
        reader.string()
        reader.byte_string()
    return Joined(error, generation, leader, member_id, tuple(members))


def sync_request(group: str, generation: int, member_id: str, assignments: Mapping[str, bytes]) -> bytes:
    return (
        string(group)
        + struct.pack(">i", generation)
        + string(member_id)
        + _NULL_STRING
        + struct.pack(">i", len(assignments))
        + b"".join(string(name) + byte_string(data) for name, data in assignments.items())
    )


def sync_answer(body: bytes) -> tuple[int, bytes]:
    """(error code, assignment)."""
    reader = Reader(body)
    reader.take(">i")
    return reader.take(">h"), reader.byte_string()


def heartbeat_request(group: str, generation: int, member_id: str) -> bytes:
    return string(group) + struct.pack(">i", generation) + string(member_id) + _NULL_STRING


def leave_request(group: str, member_id: str) -> bytes:
    return string(group) + string(member_id)


def error_answer(body: bytes) -> int:
    """The error code of a Heartbeat or LeaveGroup response."""
    reader = Reader(body)
    reader.take(">i")
    return reader.take(">h")


def subscription(topic: str) -> bytes:
    """A consumer's metadata, version 0: one topic, no user data."""
    return struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", -1)


def assignment(topic: str, partitions: list[int]) -> bytes:
    """A consumer's assignment, version 0."""
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    return (
        struct.pack(">hi", 0, 1)
        + string(topic)
        + struct.pack(">i", len(partitions))
        + numbers
        + struct.pack(">i", -1)
    )


class CommitTemplate:
    """One OffsetCommit of one partition from outside a group; only its correlation id and offset change.

    Has the face of `wire.ProduceTemplate`, so that the same closed loop drives it.
    """

    __slots__ = ("_offset_pos", "batch_bytes", "records", "request", "response_bytes")

    def __init__(self, group: str, topic: str, partition: int) -> None:
        before = (
            string(group)
            + struct.pack(">i", -1)
            + string("")
            + _NULL_STRING
            + struct.pack(">i", 1)
            + string(topic)
            + struct.pack(">ii", 1, partition)
        )
        body = before + struct.pack(">qi", 0, -1) + string("")
        self.request = encode_frame(OFFSET_COMMIT, 0, body)
        self._offset_pos = len(self.request) - len(body) + len(before)
        self.records = 1
        self.batch_bytes = len(body)
        self.response_bytes = 4 + 4 + 4 + 4 + len(string(topic)) + 4 + 4 + 2

    def stamp(self, correlation_id: int) -> bytearray:
        """The request with this correlation id, which is also the offset; the same buffer every time."""
        struct.pack_into(">i", self.request, _CORRELATION_POS, correlation_id)
        struct.pack_into(">q", self.request, self._offset_pos, correlation_id)
        return self.request

    def verify(self, frame: memoryview | bytearray, correlation_id: int) -> None:
        """Raise WrongAnswer unless `frame` (with its length prefix) says that it is committed."""
        length = len(frame)
        check_answers(frame, correlation_id)
        if length != self.response_bytes:
            raise WrongAnswer(f"a commit response of {length} bytes instead of {self.response_bytes}")
        code = struct.unpack_from(">h", frame, length - 2)[0]
        if code != NO_ERROR:
            raise WrongAnswer(f"commit refused with error code {code}")
