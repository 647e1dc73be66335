"""The fuzzer's `handlers` target: a real broker in this process, fed through its connections without sockets,
before a login, after it, inside TLS, or as they are.

Owns: the broker and its loop; how an input becomes the frames of one connection; what counts as unexpected:
an exception that a connection had to be closed for, one that nobody waited for, a line of level ERROR, a
reply out of order, a reply that our own tables cannot read, a broker that will not start again on its data.
An input is a run of items: two bytes of length, an API key, a version, a body. The header is made here. In
a Produce the CRCs are set right, so that what lies behind that check is reached; a key of 128 and more
leaves them alone, 255 says that the item is a frame of its own.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import struct
import tempfile
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import crc32c

from lockstep.broker.main import _new_loop
from lockstep.broker.network.connection import Connection
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ConnectionRejected, PendingResponse
from lockstep.broker.server import Broker
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.protocol.api import ApiKey, messages_for, request_header_version, response_header_version
from lockstep.protocol.compiler import decode
from lockstep.protocol.primitives import MalformedMessage
from tests.broker.served import served_versions
from tests.campaigns.attacked_listeners import LISTENERS, NAME, AttackedListener
from tests.campaigns.fuzz_listeners import client_of
from tests.campaigns.fuzz_targets import Violated
from tests.support.handmade_frames import values_batch

TOPICS: Final = ("fuzz-a", "fuzz-b")
TOPIC_ID_MARKS: Final = (b"fuzz-a-topic-id.", b"fuzz-b-topic-id.")
"""Stand in inputs for ids that differ from broker to broker."""
RAW_TOKENS: Final = (int(ApiKey.SASL_HANDSHAKE), 0)
"""After this version of SaslHandshake what a client sends and reads has no headers."""
INPUTS_PER_BROKER: Final = 10_000
"""Then a new one, on a new directory: what a broker rightly keeps stays small."""
TURNS: Final = 40
SHORT_WAITS: Final = 30
PATIENT_EVERY: Final = 16
"""Of so many connections with an answer under way one is waited for; the others' clients go away. Making a
topic takes milliseconds, and its work goes on under the inputs that follow."""
RAW_FRAME: Final = 0xFF
KEEP_CRC: Final = 0x80
CRC_AT: Final = 17
SERVED: Final = served_versions()
KEYS: Final = sorted(SERVED)

SMALL: Final = {
    "log.flush": "os",
    "lockstep.segment.bytes": "1048576",
    "lockstep.spare.segments": "1",
    "lockstep.tail.cache.bytes": "262144",
    "lockstep.max.partitions": "200",
    "lockstep.lookup.max.bytes": "1048576",
    "lockstep.shutdown.timeout.ms": "0",
    "message.max.bytes": "100000",
    "socket.request.max.bytes": "262144",
    "fetch.max.bytes": "65536",
    "max.incremental.fetch.session.cache.slots": "40",
}


class _Errors(logging.Handler):
    """Lines that no client should be able to cause."""

    def __init__(self, unexpected: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._unexpected = unexpected

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        self._unexpected.append(failure or Violated(f"logged: {record.getMessage()}"))


class Handlers:
    """The target; call `run` with inputs, `close` at the end. Args: listener: what the inputs are sent to."""

    def __init__(self, listener: str = AttackedListener.name) -> None:
        self._listener = LISTENERS[listener]()
        self.frames = 0
        self.answers = 0
        self._unexpected: list[BaseException] = []
        self._loop = _new_loop()
        self._loop.set_exception_handler(self._nobody_waited)
        self._log_handler = _Errors(self._unexpected)
        self._log = logging.getLogger("lockstep")
        self._log.addHandler(self._log_handler)
        self._log.propagate = False
        self._plain_fail = PendingResponse.fail
        PendingResponse.fail = self._failing()  # type: ignore[method-assign]
        self._broker: Broker | None = None
        self._directory = Path()
        self._new_connection: Callable[[], asyncio.BaseProtocol] | None = None
        self._left = 0
        self._unfinished = 0
        self._ids: list[bytes] = []

    def run(self, data: bytes) -> bool:
        """One connection that says `data`: was anything answered? Raises what nobody expected."""
        if not self._left:
            self._renew()
        self._left -= 1
        for mark, real in zip(TOPIC_ID_MARKS, self._ids, strict=True):
            data = data.replace(mark, real)
        answered = self._loop.run_until_complete(self._serve(items_of(data)))
        if self._unexpected:
            failure = self._unexpected[0]
            self._unexpected.clear()
            if self._broker is None or self._broker.failed is not None:
                self._left = 0
            raise failure
        return answered

    def close(self) -> None:
        """Stop the broker, look at it once more, remove its data."""
        try:
            if self._broker is not None:
                self._loop.run_until_complete(self._end(self._broker))
        finally:
            self._broker = None
            self._log.removeHandler(self._log_handler)
            PendingResponse.fail = self._plain_fail  # type: ignore[method-assign]
            self._loop.close()

    # --- the broker ---------------------------------------------------------------------------------------

    def _renew(self) -> None:
        if self._broker is not None:
            broker, self._broker = self._broker, None
            self._loop.run_until_complete(self._end(broker))
        self._loop.run_until_complete(self._begin())
        self._left = INPUTS_PER_BROKER

    async def _begin(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="lockstep-fuzz-"))
        broker = self._broker = Broker(
            from_texts({**SMALL, **self._settings(), "log.dirs": str(self._directory)}),
            on_fatal=self._unexpected.append,
        )
        await broker.start()
        ids = count()
        services = broker.assembly
        services.fetch_sessions._random_id = lambda largest: 1 + next(ids) % min(largest, 50)
        connections = broker.assembly.connections
        (kafka_listener,) = broker.settings.client_listeners()
        self._new_connection = broker._securities.connection_factory(connections, kafka_listener, Connection)
        plain_log = connections.log_client_error

        def log_client_error(
            peer: str, text: str, failure: BaseException | None = None, key: Hashable = None
        ) -> None:
            if failure is not None:
                self._unexpected.append(failure)
            else:
                plain_log(peer, text, key=key)

        connections.log_client_error = log_client_error  # type: ignore[method-assign]
        self._ids = []
        for name in TOPICS:
            topic = await services.topics.create(services.topics.plan(name, 3, 1, {}))
            self._ids.append(topic.topic_id)
            partition = topic.partitions[0]
            appender = services.appenders[partition.group.group_id]
            for value in (b"one", b"two"):
                appender.append(partition.log, values_batch([value]), topic.config, 9)

    def _settings(self) -> dict[str, str]:
        return {
            **self._listener.settings(),
            "listeners": f"{NAME}://127.0.0.1:0",
            "listener.security.protocol.map": f"{NAME}:{self._listener.protocol}",
        }

    async def _end(self, broker: Broker) -> None:
        """Stopped, it must start again on what the inputs left it, and stop again."""
        try:
            await broker.stop()
            again = Broker(broker.settings, on_fatal=self._unexpected.append)
            await again.start()
            await again.stop()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    # --- one connection -----------------------------------------------------------------------------------

    async def _serve(self, items: list[bytes]) -> bool:
        assert self._new_connection is not None
        client = client_of(self._listener, self._new_connection())
        await client.open(self._settle)
        connection, transport = client.connection, client.transport
        expected: list[tuple[int, int] | None] = []
        for number, item in enumerate(items):
            if transport.closed:
                break
            frame, answer = framed(item, number, self._listener.apis)
            expected.append(answer)
            self.frames += 1
            client.send(frame)
            if not transport.reading:
                await self._settle(connection)
                await asyncio.sleep(0)  # it may only have had its turn
                if not transport.reading:
                    break
        await self._settle(connection)
        connection.write_out()
        written = client.read()
        client.end()
        answers = self._check(written, expected) if client.reads_frames and RAW_TOKENS not in expected else 0
        self.answers += answers
        return answers > 0

    async def _settle(self, connection: Connection) -> None:
        """Until everything is answered, or only what waits for others is left."""
        for _ in range(TURNS):
            if not connection.is_busy:
                return
            await asyncio.sleep(0)
        for _ in range(SHORT_WAITS):
            replies = connection._replies
            if not replies or all(each.pending and each.pending.is_long_poll for each in replies):
                return
            if not self._unfinished % PATIENT_EVERY:
                await asyncio.sleep(0.001)
        self._unfinished += 1

    @staticmethod
    def _check(written: bytes, expected: list[tuple[int, int] | None]) -> int:
        """Replies are whole, in the order of their requests, and as our tables say; how many there are."""
        at = answers = 0
        last = -1
        while at < len(written):
            (length,) = struct.unpack_from(">i", written, at)
            reply = written[at + 4 : at + 4 + length]
            at += 4 + length
            if len(reply) != length or length < 4:
                raise Violated(f"a reply of {length} bytes, {len(reply)} are there")
            (number,) = struct.unpack_from(">i", reply)
            answers += 1
            if None in expected:
                continue  # a frame of its own may have any correlation id
            if not last < number < len(expected):
                raise Violated(f"reply to {number} after the one to {last}")
            last = number
            key, version = expected[number] or (0, 0)
            start = 5 if response_header_version(key, version) else 4
            try:
                decode(messages_for(key)[1], version, reply, start)
            except MalformedMessage as error:
                raise Violated(f"the answer to {key} version {version} cannot be read: {error}") from error
        return answers

    # --- what nobody expected -----------------------------------------------------------------------------

    def _failing(self) -> Any:
        unexpected, plain = self._unexpected, self._plain_fail

        def fail(deferred: PendingResponse, failure: BaseException) -> None:
            if not isinstance(failure, (asyncio.CancelledError, ConnectionRejected)):
                unexpected.append(failure)
            plain(deferred, failure)

        return fail

    def _nobody_waited(self, loop: asyncio.AbstractEventLoop, said: dict[str, Any]) -> None:
        failure = said.get("exception")
        if not isinstance(failure, RequestError):
            self._unexpected.append(failure or Violated(f"the loop says: {said.get('message')}"))


def items_of(data: bytes) -> list[bytes]:
    """The items of an input; the last one may be shorter than it says."""
    items: list[bytes] = []
    at = 0
    while at + 2 < len(data) and len(items) < 20:
        length = int.from_bytes(data[at : at + 2], "big")
        items.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return items


def item(api_key: int, version: int, body: bytes, keep_crc: bool = False) -> bytes:
    """An item that asks for this API in this version."""
    inner = bytes([api_key | (KEEP_CRC if keep_crc else 0), version - SERVED[api_key][0]]) + body
    return len(inner).to_bytes(2, "big") + inner


def framed(inner: bytes, number: int, apis: Sequence[int] = ()) -> tuple[bytes, tuple[int, int] | None]:
    """The frame of an item, length first, and the (key, version) of its answer; None where nobody knows.
    Args: apis: the only ones it may be for; () for all."""
    if not inner or inner[0] == RAW_FRAME:
        return struct.pack(">i", len(inner[1:])) + inner[1:], None
    key = inner[0] & ~KEEP_CRC
    keys = apis or KEYS
    if key not in SERVED or key not in keys:
        key = keys[key % len(keys)]
    first, last = SERVED[key]
    version = first + (inner[1] if len(inner) > 1 else 0) % (last - first + 1)
    head = struct.pack(">hhih", key, version, number, 4) + b"fuzz"
    if request_header_version(key, version) == 2:
        head += b"\0"
    body = bytearray(inner[2:])
    if key == ApiKey.PRODUCE and not inner[0] & KEEP_CRC:
        _repair(body, version)
    return struct.pack(">i", len(head) + len(body)) + head + body, (key, version)


def _repair(body: bytearray, version: int) -> None:
    """Set the CRC of each batch in a Produce request, where it can be decoded."""
    try:
        request: Any = decode(messages_for(ApiKey.PRODUCE)[0], version, body, trailing=True)
    except MalformedMessage:
        return
    for topic in request.topic_data:
        for partition in topic.partition_data:
            batch = partition.records
            if batch is not None and len(batch) >= 61:
                struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(batch[21:]))
