"""Records that ask for locks, and what is heard of them."""

from __future__ import annotations

from typing import Any

from lockstep.protocol.messages.produce import PartitionProduceResponse
from lockstep.protocol.records.record import BatchBuilder, Headers
from tests.broker.wire import Client


def batch(*records: Headers, value: bytes = b"v", **builder: Any) -> bytes:
    building = BatchBuilder(**builder)
    for headers in records:
        building.append(value, headers=headers, timestamp_ms=1_000)
    return building.build()


def asks(hwm: int | None = None, **headers: str) -> Headers:
    """`asks(5, write_lock="a")`: the headers of one record."""
    found: Headers = [] if hwm is None else [("lockstep-hwm", b"%d" % hwm)]
    return found + [(f"lockstep-{key.replace('_', '-')}", each.encode()) for key, each in headers.items()]


def said(response: PartitionProduceResponse) -> dict[str, str]:
    """The words of a refusal."""
    assert not response.record_errors
    text = response.error_message
    assert text is not None and text.startswith("LOCKSTEP_REFUSED ")
    words = text.split(" ")[1:]
    found = dict(word.split("=", 1) for word in words if "=" in word)
    found["how"] = words[-1]
    return found


async def lock(client: Client, hwm: int | None, topic: str = "t", partition: int = 0, **headers: str) -> int:
    """The offset of one locked record, or minus the error."""
    response = await client.produce(topic, batch(asks(hwm, **headers)), partition)
    return -response.error_code if response.error_code else response.base_offset
