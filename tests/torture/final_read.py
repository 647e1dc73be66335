"""Everything a topic holds that is committed, read from the start through one bootstrap server.

An open transaction holds the reader back, so this also says that none is left hanging.
"""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka

from tests.torture.clients.recording import value_of

WATERMARKS_S = 15.0
READ_S = 60.0


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, list[tuple[int, str]]]:
    """Each partition's (offset, value) up to its end as told before reading. KafkaException, TimeoutError."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    read: dict[int, list[tuple[int, str]]] = {partition: [] for partition in range(partitions)}
    try:
        spots = [confluent_kafka.TopicPartition(topic, partition, 0) for partition in read]
        ends = {spot.partition: consumer.get_watermark_offsets(spot, WATERMARKS_S)[1] for spot in spots}
        consumer.assign(spots)
        reached = dict.fromkeys(ends, -1)
        """Where the client said there is no more for it; markers have offsets, but are no records."""
        deadline = time.monotonic() + READ_S
        while any(reached[partition] < end for partition, end in ends.items()):
            for message in consumer.consume(1000, timeout=0.1):
                _take(message, read, reached)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{reached} of {ends}")
    finally:
        consumer.close()
    return read


def _take(message: Any, read: dict[int, list[tuple[int, str]]], reached: dict[int, int]) -> None:
    if message.error() is None:
        read[message.partition()].append((message.offset(), value_of(message.value())))
    elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
        reached[message.partition()] = message.offset()
    else:
        raise confluent_kafka.KafkaException(message.error())
