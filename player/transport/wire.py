"""The messages of a stream as protobuf bytes: `player/player.proto`, for gRPC.

Owns: the validation of a message before any use of it. Does not: frame, or send. Pure functions.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from lockstep.player.core.messages import Batch, Hello, Part
from lockstep.player.generated.player_pb2 import FromPlayer, FromTarget
from lockstep.player.transport.interface import Handshake, Malformed, StreamEvents


def hello_bytes(handshake: Handshake) -> bytes:
    hello = handshake.hello
    message = FromPlayer()
    to = message.hello
    to.log_id = hello.log_id
    to.player_term = hello.player_term
    to.target_term = hello.target_term
    to.first_position = hello.first_position
    to.topic = handshake.topic
    to.partition = handshake.partition
    to.SetInParent()
    return message.SerializeToString()


def batch_bytes(batch: Batch) -> bytes:
    """Payloads are bytes, or None in dummies."""
    message = FromPlayer()
    to = message.batch
    to.previous_position = batch.previous_position
    add = to.parts.add  # a third of the time that a list of Part takes
    for part in batch.parts:
        add(position=part.position, records=part.payload, partition=part.partition)
    return message.SerializeToString()


def _heartbeat() -> bytes:
    message = FromPlayer()
    message.heartbeat.SetInParent()
    return message.SerializeToString()


HEARTBEAT = _heartbeat()


def from_player(data: bytes) -> Handshake | Batch | None:
    """Parse a player's message; None is a heartbeat. Raises Malformed."""
    try:
        message = FromPlayer.FromString(data)
    except DecodeError as error:
        raise Malformed(f"{len(data)} bytes that are no message of a player") from error
    kind = message.WhichOneof("message")
    if kind == "batch":
        return _parse_batch(message)
    if kind == "heartbeat":
        return None
    if kind == "hello":
        it = message.hello
        hello = Hello(it.log_id, it.player_term, it.target_term, it.first_position)
        return Handshake(hello, it.topic, it.partition)
    raise Malformed("a message of a player that is empty, or of a kind that is not known")


def _parse_batch(message: FromPlayer) -> Batch:
    parts: list[Part] = []
    total_bytes = 0
    for part in message.batch.parts:
        records = part.records
        size_bytes = len(records)
        total_bytes += size_bytes
        partition = part.partition if part.HasField("partition") else None
        parts.append(Part(part.position, records or None, size_bytes, partition))
    if not parts:
        raise Malformed("a batch without parts")
    return Batch(message.batch.previous_position, parts, total_bytes)


def greeted_bytes(position: int) -> bytes:
    message = FromTarget()
    message.greeted.position = position
    message.greeted.SetInParent()
    return message.SerializeToString()


def stale_bytes(player_term: int, target_term: int) -> bytes:
    message = FromTarget()
    message.stale.player_term = player_term
    message.stale.target_term = target_term
    message.stale.SetInParent()
    return message.SerializeToString()


def acknowledged_bytes(position: int) -> bytes:
    message = FromTarget()
    message.acknowledged.position = position
    message.acknowledged.SetInParent()
    return message.SerializeToString()


def dispatch(data: bytes, events: StreamEvents) -> None:
    """Dispatch a target's message to `events`. Raises Malformed."""
    try:
        message = FromTarget.FromString(data)
    except DecodeError as error:
        raise Malformed(f"{len(data)} bytes that are no message of a target") from error
    kind = message.WhichOneof("message")
    if kind == "acknowledged":
        events.on_acknowledged(message.acknowledged.position)
    elif kind == "greeted":
        events.on_greeted(message.greeted.position)
    elif kind == "stale":
        events.on_stale(message.stale.player_term)
    else:
        raise Malformed("a message of a target that is empty, or of a kind that is not known")
