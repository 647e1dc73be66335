"""A bare client for broker tests: our own codec over one socket, requests written as messages."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, TypeVar

from lockstep.protocol.api import request_header_version, response_header_version
from lockstep.protocol.compiler import decode, encode_bytes
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lockstep.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.private_messages import PRIVATE_MESSAGES
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.record import BatchBuilder, Record, iter_records

T = TypeVar("T", bound=Struct)

_KEYS = {request: (key, response) for key, (request, response) in {**MESSAGES, **PRIVATE_MESSAGES}.items()}


def frame(message: Struct, version: int, correlation_id: int = 1, client_id: str = "test") -> bytes:
    """A whole request frame, length first."""
    key = _KEYS[type(message)][0]
    name = client_id.encode()
    header = struct.pack(">hhih", key, version, correlation_id, len(name)) + name
    if request_header_version(key, version) == 2:
        header += b"\0"
    body = header + encode_bytes(message, version)
    return struct.pack(">i", len(body)) + body


def batch(*values: bytes, timestamp_ms: int = 1_000, **builder: Any) -> bytes:
    """One record batch with these values, a millisecond apart."""
    building = BatchBuilder(**builder)
    for place, value in enumerate(values):
        building.append(value, timestamp_ms=timestamp_ms + place)
    return building.build()


def records_of(data: PartitionData) -> list[Record]:
    """All records of a Fetch answer."""
    found: list[Record] = []
    raw = bytes(data.records or b"")  # type: ignore[arg-type]
    for at, _ in iter_headers(raw):
        found += list(iter_records(raw, at))
    return found


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> Client:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 27))

    async def close(self) -> None:
        self.writer.close()

    def send(self, message: Struct, version: int, client_id: str = "test") -> int:
        """Write a request; returns its correlation id."""
        self._correlation_id += 1
        self.writer.write(frame(message, version, self._correlation_id, client_id))
        return self._correlation_id

    async def receive_raw(self) -> bytes:
        """The next reply, without its length. Raises IncompleteReadError when the connection is closed."""
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def receive(self, request: Struct, version: int) -> tuple[int, Struct]:
        """The next reply as the response to `request`: correlation id and message."""
        key, response = _KEYS[type(request)]
        raw = await self.receive_raw()
        (correlation_id,) = struct.unpack_from(">i", raw)
        pos = 5 if response_header_version(key, version) else 4
        return correlation_id, decode(response, version, raw, pos)

    async def call(self, message: Struct, version: int, client_id: str = "test") -> Any:
        """Send and wait for the answer."""
        sent = self.send(message, version, client_id)
        correlation_id, response = await asyncio.wait_for(self.receive(message, version), 20)
        assert correlation_id == sent
        return response

    async def is_closed(self) -> bool:
        """Does the broker close this connection (within a few seconds), with nothing more to say?"""
        try:
            return await asyncio.wait_for(self.reader.read(1), 5) == b""
        except ConnectionResetError:
            return True

    # --- common requests ----------------------------------------------------------------------------------

    async def create(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Make a topic; returns its id."""
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        response: CreateTopicsResponse = await self.call(CreateTopicsRequest(topics=[wanted]), 7)
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        return response.topics[0].topic_id

    async def produce(
        self, topic: str, data: bytes, partition: int = 0, acks: int = -1
    ) -> PartitionProduceResponse:
        """Append one batch."""
        request = produce_request(topic, data, partition, acks)
        response: ProduceResponse = await self.call(request, 9)
        return response.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, partition: int = 0, **options: Any) -> PartitionData:
        """Read one partition, not waiting."""
        request = fetch_request({topic: {partition: offset}}, **options)
        response: FetchResponse = await self.call(request, 12)
        return response.responses[0].partitions[0]


def produce_request(topic: str, data: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=data)])
        ],
    )


def fetch_request(wanted: dict[str, dict[int, int]], **options: Any) -> FetchRequest:
    """A Fetch without a session of topic -> partition -> offset; options are FetchRequest's fields."""
    partition_options = {
        key: options.pop(key)
        for key in ("partition_max_bytes", "current_leader_epoch", "last_fetched_epoch")
        if key in options
    }
    partition_options.setdefault("partition_max_bytes", 1 << 20)
    options.setdefault("max_wait_ms", 0)
    options.setdefault("min_bytes", 1)
    return FetchRequest(
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=partition, fetch_offset=offset, **partition_options)
                    for partition, offset in partitions.items()
                ],
            )
            for topic, partitions in wanted.items()
        ],
        **options,
    )
