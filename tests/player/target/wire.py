"""The player's end of a stream as `player/player.proto` says it, and nothing else: for judging targets.

The messages are made from the .proto at run time, in a pool of their own: neither the project's generated
code nor its transports take part.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from lockstep.protocol.records import batch_filter
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder

PATIENCE_S: Final = 30.0
_PROTO: Final = Path(__file__).resolve().parents[3] / "player" / "player.proto"
_METHOD: Final = "/lockstep.player.v1.Target/Play"
_OPTIONS: Final = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


@functools.cache
def _kinds() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        options = [f"-I{_PROTO.parent}", f"--descriptor_set_out={out}", _PROTO.name]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options], check=True)
        described = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for each in described.file:
        pool.Add(each)
    names = [message.name for each in described.file for message in each.message_type]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lockstep.player.v1.{name}"))
        for name in names
    }


def part(position: int, records: bytes = b"", partition: int | None = None) -> Any:
    """A part; without records a dummy."""
    return _kinds()["Part"](position=position, records=records, partition=partition)


def records(
    base_offset: int, pairs: Sequence[tuple[bytes | None, bytes | None]], codec: Codec = Codec.NONE
) -> bytes:
    """A record batch with these keys and values, the first of them at `base_offset`."""
    builder = BatchBuilder(codec=codec)
    for key, value in pairs:
        builder.append(
            value, key, timestamp_ms=1_700_000_000_000, headers=[("kind", b"test"), ("none", None)]
        )
    return builder.build(base_offset)


def only(batch: bytes, offsets: Collection[int]) -> bytes:
    """The batch with the records at these offsets alone."""
    opened = batch_filter.open_batch(batch)
    return batch_filter.filter_batch(opened, [each for each in opened.spans if each.offset in offsets]).batch


class Ended(Exception):
    """The target ended the stream: with this status, after all that it said."""

    def __init__(self, status: grpc.StatusCode, words: str) -> None:
        super().__init__(f"{status.name}: {words}")
        self.status = status


class PlayerEnd:
    """One stream to a target. What it says is asked for one by one."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[Any] = queue.SimpleQueue()
        play = channel.stream_stream(
            _METHOD,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=_kinds()["FromTarget"].FromString,
        )
        self._call: Any = play(iter(self._out.get, None), wait_for_ready=True)
        threading.Thread(target=self._read, daemon=True).start()

    def hello(self, log_id: str, terms: tuple[int, int], first_position: int = 0) -> None:
        player_term, target_term = terms
        hello = _kinds()["Hello"](
            log_id=log_id,
            player_term=player_term,
            target_term=target_term,
            first_position=first_position,
            topic="topic",
            partition=3,
        )
        self._say(hello=hello)

    def batch(self, previous_position: int, *parts: Any) -> None:
        self._say(batch=_kinds()["Batch"](previous_position=previous_position, parts=parts))

    def heartbeat(self) -> None:
        self._say(heartbeat=_kinds()["Heartbeat"]())

    def said(self) -> tuple[str, Any]:
        """The next message: which it is, and what is in it. Raises Ended; TimeoutError where none comes."""
        try:
            message = self._in.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise TimeoutError(f"nothing was said for {PATIENCE_S} s") from None
        if isinstance(message, Ended):
            self._in.put(message)
            raise message
        which = message.WhichOneof("message")
        return which, getattr(message, which)

    def greeted(self) -> int:
        which, message = self.said()
        assert which == "greeted", (which, message)
        return int(message.position)

    def stale(self) -> tuple[int, int]:
        which, message = self.said()
        assert which == "stale", (which, message)
        return message.player_term, message.target_term

    def acknowledged(self) -> int:
        which, message = self.said()
        assert which == "acknowledged", (which, message)
        return int(message.position)

    def acknowledged_through(self, position: int) -> list[int]:
        """All acknowledgements up to that of `position`."""
        found: list[int] = []
        while not found or found[-1] < position:
            found.append(self.acknowledged())
        return found

    def end(self) -> Ended:
        """How the target ends the stream, whatever else it says before."""
        while True:
            try:
                self.said()
            except Ended as ended:
                return ended

    def close(self) -> None:
        self._call.cancel()
        self._out.put(None)

    def _say(self, **message: Any) -> None:
        self._out.put(_kinds()["FromPlayer"](**message))

    def _read(self) -> None:
        try:
            for message in self._call:
                self._in.put(message)
        except grpc.RpcError:
            pass  # its code says the same
        self._in.put(Ended(self._call.code(), self._call.details() or ""))


@contextlib.contextmanager
def player_end(address: str) -> Iterator[PlayerEnd]:
    """A stream over a connection of its own."""
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        stream = PlayerEnd(channel)
        try:
            yield stream
        finally:
            stream.close()
