"""The messages between nodes of one cluster: tables for the same codec, not part of Kafka's protocol.

A frame is a 4-byte length, the message's kind and version (two bytes each), then the body that the table of
that kind describes. `PEER_MESSAGES` finds the table of a kind; a kind's number is never used again for
another. Every body may grow by tagged fields, which older nodes skip, or by a version, which a node
sends only to those whose handshake has at least that version (`latest_version`).

Not here: the meaning of Raft's messages (`lockstep.storage.raft.messages`), permissions
(`lockstep.storage.peers`).
"""

from __future__ import annotations

from typing import Final

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    byte_string,
    int8,
    int16,
    int32,
    int64,
    message,
    record_data,
    string,
    struct,
    uint32,
)
from lockstep.protocol.primitives import Buffer, Data

LATEST_VERSION: Final = 0
"""The version of the protocol as a whole."""

CHECKPOINT_PIECE: Final = 0
FRAMES_PIECE: Final = 1


@message(api_key=0x4C53, versions="0", flexible="0+", kind="peer")
class PeerHandshake(Struct):
    """The first frame of a connection: the dialing node, the node that it expects, the kind of connection."""

    latest_version: int = int16(default=LATEST_VERSION)
    node_id: int = int32()
    to_node_id: int = int32()
    bulk: bool = boolean()
    hello: Buffer = byte_string()


@message(api_key=0x4C54, versions="0", flexible="0+", kind="peer")
class HandshakeAccepted(Struct):
    """The accepting node's response: the dialing node may send now."""

    latest_version: int = int16(default=LATEST_VERSION)


@message(api_key=0x4C55, versions="0", flexible="0+", kind="peer")
class HandshakeRejected(Struct):
    """The reason why the connection is closed."""

    reason: str = string()


@message(api_key=20, versions="0", flexible="0+", kind="peer")
class NotificationBody(Struct):
    """A one-way message; of several with one topic only the newest counts."""

    topic: int = int16()
    body: Buffer = byte_string()


@message(api_key=21, versions="0", flexible="0+", kind="peer")
class RequestBody(Struct):
    """A request to the other node; the response comes on the connection that that node dialed."""

    request_id: int = int64()
    topic: int = int16()
    body: Buffer = byte_string()


@message(api_key=22, versions="0", flexible="0+", kind="peer")
class ResponseBody(Struct):
    """The result of a request, or its error."""

    request_id: int = int64()
    error: str | None = string(default=None, nullable="0+")
    body: Buffer = byte_string()


# Raft's messages: the group, then the fields of the class of that name in lockstep.storage.raft.messages.


@message(api_key=1, versions="0", flexible="0+", kind="peer")
class VoteRequestBody(Struct):
    """A candidate's request for a vote or, before that, a pre-vote."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    pre: bool = boolean()
    last_index: int = int64()
    last_term: int = int64()
    transfer: bool = boolean()


@message(api_key=2, versions="0", flexible="0+", kind="peer")
class VoteResponseBody(Struct):
    """A vote, granted or not."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    pre: bool = boolean()
    granted: bool = boolean()


@struct()
class TermStart(Struct):
    """The first index of consecutive entries of one term."""

    first_index: int = int64()
    term: int = int64()


@struct()
class ConfigurationEntry(Struct):
    """A configuration among the entries, in the bytes of its frame."""

    entry_index: int = int64()
    configuration: Buffer = byte_string()


@message(api_key=3, versions="0", flexible="0+", kind="peer")
class AppendBody(Struct):
    """Entries, or a probe without any."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    prev_index: int = int64()
    prev_term: int = int64()
    last_index: int = int64()
    commit_index: int = int64()
    sent_ms: int = int64()
    chain: int = uint32()
    runs: list[TermStart] = array(TermStart)
    configurations: list[ConfigurationEntry] = array(ConfigurationEntry)
    frames: Data = record_data(default=b"")


@message(api_key=4, versions="0", flexible="0+", kind="peer")
class AppendResponseBody(Struct):
    """The index up to which the follower's log matches the leader's."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    match_index: int = int64()
    prev_index: int = int64()
    hint_index: int = int64()
    hint_term: int = int64()
    sent_ms: int = int64()


@message(api_key=5, versions="0", flexible="0+", kind="peer")
class HeartbeatBody(Struct):
    """The leader's sign of life."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    commit_index: int = int64()
    sent_ms: int = int64()


@message(api_key=6, versions="0", flexible="0+", kind="peer")
class HeartbeatResponseBody(Struct):
    """The follower's sign of life."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    match_index: int = int64()
    sent_ms: int = int64()


@message(api_key=7, versions="0", flexible="0+", kind="peer")
class TimeoutNowBody(Struct):
    """The request to start an election at once."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()


@message(api_key=8, versions="0", flexible="0+", kind="peer")
class InstallBody(Struct):
    """One chunk of a checkpoint; `piece` is CHECKPOINT_PIECE or FRAMES_PIECE, `after` is -1 where an older
    version does not name the frame before it: such a piece is rejected. `commit_index` is 0 where it
    does not send its commit index."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    entry_index: int = int64()
    last_term: int = int64()
    chunk: int = int64()
    done: bool = boolean()
    sent_ms: int = int64()
    piece: int = int8()
    chain: int = uint32()
    data: Data = record_data(default=b"")
    after: int = int64(default=-1, tagged="0+", tag=0)
    commit_index: int = int64(default=0, tagged="0+", tag=1)


@message(api_key=9, versions="0", flexible="0+", kind="peer")
class InstallResponseBody(Struct):
    """The result for one chunk."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    index: int = int64()
    chunk: int = int64()
    accepted: bool = boolean()
    sent_ms: int = int64()


@message(api_key=10, versions="0", flexible="0+", kind="peer")
class RangeRequestBody(Struct):
    """The request for entries that are corrupt at the sender."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    first_index: int = int64()
    last_index: int = int64()


@message(api_key=11, versions="0", flexible="0+", kind="peer")
class RangeResponseBody(Struct):
    """The requested entries."""

    group_id: int = int32()
    sender: int = int64()
    to: int = int64()
    term: int = int64()
    first_index: int = int64()
    chain: int = uint32()
    frames: Data = record_data(default=b"")


_TABLES: Final[tuple[type[Struct], ...]] = (
    PeerHandshake,
    HandshakeAccepted,
    HandshakeRejected,
    NotificationBody,
    RequestBody,
    ResponseBody,
    VoteRequestBody,
    VoteResponseBody,
    AppendBody,
    AppendResponseBody,
    HeartbeatBody,
    HeartbeatResponseBody,
    TimeoutNowBody,
    InstallBody,
    InstallResponseBody,
    RangeRequestBody,
    RangeResponseBody,
)
PEER_MESSAGES: Final[dict[int | None, type[Struct]]] = {table.SCHEMA.api_key: table for table in _TABLES}
"""Tables by kind."""
