"""Steps of whole requests for `python -m bench micro`: from the receive buffer to the write, without sockets.

Owns: a broker in this process, and connections over transports that drop what is written. A step is what one
request of many like it costs the loop's thread in CPU: that of the quickest round of some, as the machine has
other work. Requests are encoded before they are timed. Nothing is flushed.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.load.wire import record_batch
from bench.settings import FILL_BATCH_RECORDS, RECORD_BYTES
from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.broker.network.connection import Connection
from lockstep.broker.server import Broker
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.protocol.api import ApiKey, request_header_version, response_header_version
from lockstep.protocol.compiler import decode, encode_bytes
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from lockstep.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lockstep.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from lockstep.protocol.records.batch import read_header

ROUNDS: Final = 30
CLIENTS: Final = 64
READ_BYTES: Final = 1 << 20
LOG_BYTES: Final = 32 << 20
"""Of each log that is read: more than the tail cache has, so that the reads go to the page cache."""
POLLS: Final = 20_000
"""So often a response is looked for."""
TOPICS: Final = 50
PARTITIONS: Final = 4
_CLIENT_ID: Final = b"bench"
_VERSIONS: Final[dict[int, int]] = {
    ApiKey.FETCH: 12, ApiKey.METADATA: 12, ApiKey.OFFSET_COMMIT: 8, ApiKey.HEARTBEAT: 4,
    ApiKey.JOIN_GROUP: 9, ApiKey.SYNC_GROUP: 5, ApiKey.FIND_COORDINATOR: 4, ApiKey.CREATE_TOPICS: 7,
}  # fmt: skip


class _Transport:
    """Counts the writes, and keeps the last."""

    def __init__(self) -> None:
        self.writes = 0
        self.last: list[bytes] = []

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("192.0.2.1", 5), "sockname": ("192.0.2.2", 9092)}.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is limited."""

    def write(self, data: bytes) -> None:
        self.writelines([data])

    def writelines(self, pieces: list[bytes]) -> None:
        self.writes += 1
        self.last = pieces

    def pause_reading(self) -> None:
        """Nothing is read."""

    resume_reading = close = abort = pause_reading

    def get_write_buffer_size(self) -> int:
        return 0


class _Client:
    """A connection of the broker without a socket."""

    def __init__(self, broker: Broker) -> None:
        self.transport = _Transport()
        self.connection = Connection(broker.assembly.connections, "PLAINTEXT")
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, frame: bytes) -> None:
        """The broker receives a request."""
        room = self.connection.get_buffer(-1)
        room[: len(frame)] = frame
        self.connection.buffer_updated(len(frame))

    async def call(self, request: Struct) -> Any:
        """The response to a request."""
        before = self.transport.writes
        self.send(_frame(request))
        for _ in range(POLLS):
            if self.transport.writes > before:
                break
            await asyncio.sleep(0.001)
        return self.last_response(request)

    def last_response(self, request: Struct) -> Any:
        """The last response, which is to such a request."""
        key, version = _key_and_version(request)
        at = 8 + response_header_version(key, version)
        return decode(MESSAGES[key][1], version, b"".join(self.transport.last), at)


def _key_and_version(request: Struct) -> tuple[int, int]:
    key = type(request).SCHEMA.api_key
    assert key is not None
    return key, _VERSIONS[key]


def _frame(request: Struct, correlation_id: int = 7) -> bytes:
    key, version = _key_and_version(request)
    header = struct.pack(">hhih", key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
    header += bytes(request_header_version(key, version) - 1)
    body = header + encode_bytes(request, version)
    return len(body).to_bytes(4, "big") + body


def _fetch(offset: int, topic: str, **fields: Any) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=READ_BYTES)]
    topics = [FetchTopic(topic=topic, partitions=partitions)]
    given: dict[str, Any] = {
        "max_wait_ms": 60_000,
        "min_bytes": 1,
        "max_bytes": READ_BYTES,
        "topics": topics,
    } | fields
    return FetchRequest(**given)


class _Bench:
    """A running broker with topics. Args: rounds: of each step."""

    def __init__(self, broker: Broker, rounds: int) -> None:
        self.broker = broker
        self._rounds = rounds
        self._clients: list[_Client] = []
        self._groups = 0
        """Groups so far: each step has others."""

    async def fill(self, topic: str, records: int) -> Partition:
        """A log of batches of so many records in a topic's first partition."""
        partition = self.broker.assembly.cluster.partition(topic, 0)
        assert partition is not None
        batch = record_batch(records, RECORD_BYTES, 1_700_000_000_000)
        header = read_header(batch)
        for _ in range(LOG_BYTES // len(batch) // 16):
            for _ in range(16):
                partition.group.append(partition.log, bytearray(batch), header)
            await partition.group.committed()
        return partition

    async def least(self, frames: Callable[[int], Sequence[bytes]], wait: Callable[[], Any]) -> float:
        """The CPU of one request in the quickest round, in microseconds.

        Args:
            frames: of a round's number, one request for each client.
            wait: until the responses of a round have been written.
        """
        best = 1e9
        for number in range(self._rounds):
            sent = frames(number)
            began = time.thread_time()
            for client, frame in zip(self._clients, sent, strict=True):
                client.send(frame)
            await wait()
            best = min(best, (time.thread_time() - began) / len(sent))
        return best * 1e6

    def connect(self, count: int) -> list[_Client]:
        """Other clients, for the next step."""
        for each in self._clients:
            each.connection.connection_lost(None)
        self._clients = [_Client(self.broker) for _ in range(count)]
        return self._clients

    async def wait_for_responses(self) -> None:
        """All responses of a round are written."""
        for _ in range(POLLS):
            await asyncio.sleep(0)
            if not any(each.connection.has_requests for each in self._clients):
                break
        await asyncio.sleep(0)

    # --- Fetch --------------------------------------------------------------------------------------------

    async def catch_up(self, topic: str, records: int) -> float:
        """A megabyte a request, one after the other, without a session."""
        partition = await self.fill(topic, records)
        end = partition.log.high_watermark
        step = READ_BYTES // RECORD_BYTES
        offsets = [*range(0, end - 4 * step, step - step % records)]
        self.connect(1)
        every = [_frame(_fetch(each, topic)) for each in offsets]
        return await self.least(lambda number: [every[number % len(every)]], self.wait_for_responses)

    async def sessions(self, topic: str) -> list[int]:
        """Clients, each with a fetch session at the end of a topic's first partition; their ids."""
        partition = self.broker.assembly.cluster.partition(topic, 0)
        assert partition is not None
        first = _fetch(partition.log.high_watermark, topic, session_epoch=0, max_wait_ms=0)
        return [(await each.call(first)).session_id for each in self.connect(CLIENTS)]

    async def tail(self, topic: str) -> float:
        """Consumers wait in a session, and get a new batch of one record: all of them the same."""
        partition = self.broker.assembly.cluster.partition(topic, 0)
        assert partition is not None
        ids = await self.sessions(topic)
        batch = record_batch(1, RECORD_BYTES, 1_700_000_000_000)
        header = read_header(batch)

        def frames(number: int) -> list[bytes]:
            offset = partition.log.high_watermark
            fields: dict[str, Any] = {"topics": []} if number == 0 else {}
            return [
                _frame(_fetch(offset, topic, session_id=each, session_epoch=number + 1, **fields))
                for each in ids
            ]

        async def wait() -> None:
            partition.group.append(partition.log, bytearray(batch), header)
            await partition.group.committed()
            await self.wait_for_responses()

        return await self.least(frames, wait)

    async def idle(self, topic: str) -> float:
        """Consumers wait in a session until nothing has come."""
        ids = await self.sessions(topic)

        def frames(number: int) -> list[bytes]:
            return [
                _frame(_fetch(0, topic, session_id=each, session_epoch=number + 1, topics=[], max_wait_ms=20))
                for each in ids
            ]

        async def wait() -> None:
            await asyncio.sleep(0.03)
            await self.wait_for_responses()

        return await self.least(frames, wait)

    # --- groups and metadata --------------------------------------------------------------------------------

    async def members(self) -> list[tuple[str, int, str]]:
        """Clients, each the only member of a group of its own: groups, generations, members."""
        found = []
        for client in self.connect(CLIENTS):
            self._groups += 1
            group = f"group-{self._groups}"
            await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
            join = JoinGroupRequest(
                group_id=group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000, member_id="",
                protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )  # fmt: skip
            join.member_id = (await client.call(join)).member_id
            joined = await client.call(join)
            assigned = [SyncGroupRequestAssignment(member_id=join.member_id, assignment=b"")]
            await client.call(
                SyncGroupRequest(
                    group_id=group,
                    generation_id=joined.generation_id,
                    member_id=join.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=assigned,
                )
            )
            found.append((group, joined.generation_id, join.member_id))
        return found

    async def heartbeats(self) -> float:
        """Members of groups send heartbeats."""
        sent = [
            _frame(HeartbeatRequest(group_id=group, generation_id=generation, member_id=member))
            for group, generation, member in await self.members()
        ]
        taken = await self.least(lambda number: sent, self.wait_for_responses)
        assert not any(each.last_response(HeartbeatRequest()).error_code for each in self._clients)
        return taken

    async def commits(self) -> float:
        """Members of groups each commit an offset of one partition."""
        members = await self.members()

        def frames(number: int) -> list[bytes]:
            partitions = OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
            topics = [OffsetCommitRequestTopic(name="topic-0", partitions=[partitions])]
            return [
                _frame(
                    OffsetCommitRequest(
                        group_id=group,
                        generation_id_or_member_epoch=generation,
                        member_id=member,
                        topics=topics,
                    )
                )
                for group, generation, member in members
            ]

        taken = await self.least(frames, self.wait_for_responses)
        for each in self._clients:
            assert not each.last_response(OffsetCommitRequest()).topics[0].partitions[0].error_code
        return taken

    async def metadata(self) -> float:
        """Clients request the metadata of one topic each, of four partitions."""
        self.connect(CLIENTS)
        sent = [
            _frame(MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{number % TOPICS}")]))
            for number in range(CLIENTS)
        ]
        return await self.least(lambda number: sent, self.wait_for_responses)


async def request_steps(directory: Path, rounds: int = ROUNDS) -> dict[str, float]:
    """CPU microseconds of one request of each step."""
    broker = Broker(
        from_texts(
            {
                "log.dirs": str(directory),
                "log.flush": "os",
                "group.initial.rebalance.delay.ms": "0",
                "listeners": "PLAINTEXT://127.0.0.1:0",
            }
        )
    )
    await broker.start()
    try:
        bench = _Bench(broker, rounds)
        names = [f"topic-{number}" for number in range(TOPICS)]
        topics = [
            CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1) for name in names
        ]
        (client,) = bench.connect(1)
        await client.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        return {
            "Fetch, 1 MiB of 16 KB batches": await bench.catch_up("topic-0", FILL_BATCH_RECORDS),
            "Fetch, 1 MiB of 1 KB batches": await bench.catch_up("topic-1", 1),
            f"Fetch, {CLIENTS} sessions, a new batch of 1 KB": await bench.tail("topic-2"),
            f"Fetch, {CLIENTS} sessions, nothing new": await bench.idle("topic-2"),
            f"Heartbeat, {CLIENTS} groups": await bench.heartbeats(),
            f"OffsetCommit, {CLIENTS} groups": await bench.commits(),
            f"Metadata of one topic, {CLIENTS} clients": await bench.metadata(),
        }  # fmt: skip
    finally:
        await broker.stop()
