"""`python -m tests.protocol.codec_speed`: microseconds per message on the paths every request takes.

Best of seven rounds, one topic and one partition. Not a test: it says nothing about other machines.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

from protocol.api import read_request_header
from protocol.compiler import decode, encode, encode_bytes
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_ROUNDS, _CALLS = 7, 20_000


def _report(what: str, call: Callable[[], object]) -> None:
    best = min(timeit.repeat(call, number=_CALLS, repeat=_ROUNDS)) / _CALLS * 1e6
    print(f"{what:32}{best:7.2f} us")


def _produce(version: int) -> None:
    name, topic_id = ("", b"t" * 16) if version >= 13 else ("bench-topic", bytes(16))
    data = [PartitionProduceData(index=3, records=b"R" * 16384)]
    request = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=data)]
    )
    frame = memoryview(encode_bytes(request, version))
    _report(f"Produce v{version} request, decode", lambda: decode(ProduceRequest, version, frame))
    done = PartitionProduceResponse(index=3, base_offset=123456, log_start_offset=0)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[done])]
    )
    _report(f"Produce v{version} response, encode", lambda: encode(response, version))


def _fetch(version: int) -> None:
    name, topic_id = ("", b"t" * 16) if version >= 13 else ("bench-topic", bytes(16))
    asked = [FetchPartition(partition=3, fetch_offset=123456, partition_max_bytes=1 << 20)]
    request = FetchRequest(topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=asked)])
    frame = memoryview(encode_bytes(request, version))
    _report(f"Fetch v{version} request, decode", lambda: decode(FetchRequest, version, frame))
    part = PartitionData(partition_index=3, high_watermark=123456, records=[b"R" * 16384] * 4)
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[part])]
    )
    _report(f"Fetch v{version} response, encode", lambda: encode(response, version))


def main() -> None:
    header = memoryview(b"\0\0\0\x09\0\0\0\x07\0\x0aclient-1-a\0")
    _report("request header v2", lambda: read_request_header(header))
    for version in (3, 9, 11, 13):
        _produce(version)
    for version in (4, 11, 12, 18):
        _fetch(version)


if __name__ == "__main__":
    main()
