"""What one client writes every other reads, byte for byte, in every codec that both have.

A codec has a partition of its own, so that a reader without it can read the others.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from compat_tests.clients.face import CODECS, Client, Message, Stored
from compat_tests.conftest import unique_name
from compat_tests.harness import CLIENTS, World
from compat_tests.raw import raw_connection
from compat_tests.targets import Target

_BINARY = bytes(range(256))
_written: dict[tuple[str, str], tuple[str, list[Message]]] = {}


def _messages(writer: Client, codec: str) -> list[Message]:
    """One batch per codec, with all this writer is able to say."""
    stamp = None if "explicit timestamps" in writer.cannot else int(time.time() * 1000) - 60_000
    found = [Message(f"{codec} {n} ".encode() * 30 + _BINARY, key=b"key-%d" % n) for n in range(8)]
    found.append(Message(None, key=b"tombstone"))
    found.append(Message(b"headers", headers=(("h", b"1"), ("h", b"2"))))
    if "null header values" not in writer.cannot:
        found.append(Message(b"null header", headers=(("n", None),)))
    return [replace(each, timestamp_ms=stamp, partition=CODECS.index(codec)) for each in found]


def _codecs(client: Client) -> list[str]:
    return [codec for codec in CODECS if f"codec {codec}" not in client.cannot]


def _topic_written_by(world: World, writer_name: str, target: Target) -> tuple[str, list[Message]]:
    """Written once per writer and broker, read by all."""
    key = (writer_name, target.bootstrap)
    if key not in _written:
        writer = world.client(writer_name, target.name)
        topic = unique_name()
        with raw_connection(target.bootstrap) as raw:
            raw.create_topic(topic, len(CODECS))
        messages: list[Message] = []
        for codec in _codecs(writer):
            fresh = _messages(writer, codec)
            writer.produce(topic, fresh, codec=codec)
            messages += fresh
        _written[key] = (topic, messages)
    return _written[key]


@pytest.mark.case("Written by one, read by another", "written by {writer}")
@pytest.mark.parametrize("writer", list(CLIENTS))
def test_cross(world: World, target: Target, writer: str, client: Client) -> None:
    topic, written = _topic_written_by(world, writer, target)
    partitions = [CODECS.index(codec) for codec in _codecs(client)]
    if "xerial snappy" in client.cannot:
        partitions.remove(CODECS.index("snappy"))
    messages = [each for each in written if each.partition in partitions]
    found = client.read(topic, len(messages), partitions=partitions)
    found.sort(key=lambda each: (each.partition, each.offset))
    assert [each.content() for each in found] == [(m.key, m.value, m.headers) for m in messages]
    for partition in partitions:
        offsets = [each.offset for each in found if each.partition == partition]
        assert offsets == list(range(len(offsets)))
    stamps = [_stamp(stored, message) for stored, message in zip(found, messages, strict=True)]
    assert all(stamps)


def _stamp(stored: Stored, message: Message) -> bool:
    return message.timestamp_ms in (None, stored.timestamp_ms)
