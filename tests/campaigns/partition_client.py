"""One partition of a broker as the campaigns use it: produced to, fetched, and read back from end to end.

Owns: `PartitionClient`, a `RawConnection` for one topic; the first acknowledgement after a start. Invariant:
no codec of Lockstep's is used, so that a fault there is not repeated here.
"""

from __future__ import annotations

import time
from typing import Self

from compat_tests.raw import ConnectionClosed, RawConnection, batch
from tests.support.handmade_frames import next_offset, whole_batches

LOOPBACK = "127.0.0.1"
FAILED = (OSError, ConnectionClosed, AssertionError, KeyError, ValueError)
"""What a connection to a broker that is killed, or that sends rubbish, may raise."""


class PartitionClient:
    """A connection for partition 0 of a topic. Args: timeout_s: of each response."""

    def __init__(self, port: int, topic: str, timeout_s: float = 30.0) -> None:
        self.raw = RawConnection(LOOPBACK, port, timeout_s)
        self.topic = topic

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()

    def produce(self, value: bytes) -> tuple[int, int]:
        """(error code, offset) of one record."""
        found = self.raw.produce(self.topic, batch([value]))
        return found["error_code"], found["base_offset"]

    def fetch(self, offset: int) -> tuple[int, int, bytes]:
        """(error code, high watermark, batches) from an offset on."""
        found = self.raw.fetch(self.topic, offset, api_version=4)
        return found["error_code"], found["high_watermark"], found["records"] or b""

    def earliest(self) -> tuple[int, int]:
        """(error code, offset) of the log's start."""
        found = self.raw.list_offset(self.topic, -2, api_version=1)
        return found["error_code"], found["offset"]

    def read_all(self) -> list[tuple[int, bytes | None]]:
        """(offset, value) of every record up to the high watermark; not compressed. RuntimeError."""
        records: list[tuple[int, bytes | None]] = []
        offset = 0
        while True:
            error, end, data = self.fetch(offset)
            if error:
                raise RuntimeError(f"fetching {self.topic} at {offset}: error {error}")
            for base_offset, values in whole_batches(data):
                records += [(base_offset + number, value) for number, value in enumerate(values)]
            if offset >= end:
                return records
            following = next_offset(data, offset)
            if following is None:
                raise RuntimeError(f"fetching {self.topic}: nothing at {offset} of {end}")
            offset = following


def read_partition(port: int, topic: str) -> list[tuple[int, bytes | None]]:
    """`PartitionClient.read_all` over a connection of its own."""
    with PartitionClient(port, topic) as client:
        return client.read_all()


def api_ranges(raw: RawConnection) -> dict[int, tuple[int, int]]:
    """The broker's own ApiVersions response: key -> (lowest, highest). ValueError."""
    found = raw.call("api_versions", 0)
    if found["error_code"]:
        raise ValueError(f"ApiVersions answered error {found['error_code']}")
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in found["api_keys"]}


def first_ack(port: int, topic: str, deadline_s: float, value: bytes = b"probe") -> int:
    """Tries until one record of a topic, which this may create, is acknowledged; its offset. TimeoutError
    after `deadline_s`."""
    end = time.monotonic() + deadline_s
    problem = "nothing"
    while time.monotonic() < end:
        try:
            with PartitionClient(port, topic, min(5.0, deadline_s)) as client:
                while time.monotonic() < end:
                    error, offset = client.produce(value)
                    if error == 0:
                        return offset
                    problem = f"error {error}"
                    named = [{"name": topic}]
                    client.raw.call("metadata", 4, topics=named, allow_auto_topic_creation=True)
                    time.sleep(0.005)
        except FAILED as error:
            problem = repr(error)
            time.sleep(0.005)
    raise TimeoutError(f"no record acknowledged within {deadline_s} s; last answer: {problem}")
